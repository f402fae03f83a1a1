//! `cargo xtask demo --record`: the demonstration as a picture that moves, for the README.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Where the picture is.
pub const FILE: &str = "docs/demo.svg";
/// Largest picture, in bytes: whoever opens the README loads it.
const BYTES_MAX: usize = 300 << 10;
/// How long the picture moves, in seconds, however long the recording took.
const SECONDS: f64 = 12.0;
/// Most lines that are recorded.
const LINES_MAX: usize = 200;
/// A character of the font, a line, and the border, in pixels.
const CHARACTER: f64 = 7.25;
const LINE: usize = 17;
const BORDER: usize = 14;

/// A line that was printed, and when, in seconds since the begin.
type Line = (f64, String);

/// Runs a program, prints what it prints, and writes the picture of it, under the line that a
/// person would have typed. Returns the program's exit status.
///
/// # Errors
/// One line that says what could not be started or written.
pub fn record(root: &Path, command: &mut Command, typed: &str) -> Result<i32, String> {
    let program = command.get_program().to_owned();
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$@\" 2>&1", "sh"]).arg(program);
    shell
        .args(command.get_args())
        .current_dir(root)
        .stdout(Stdio::piped());
    let mut child = shell
        .spawn()
        .map_err(|e| format!("cannot start sh: {}", e))?;
    let output = child.stdout.take().ok_or("no output to record")?;
    let begin = Instant::now();
    let mut lines = vec![(0.0, format!("$ {}", typed))];
    for line in BufReader::new(output).lines() {
        let line = line.map_err(|e| format!("cannot read what it prints: {}", e))?;
        println!("{}", line);
        if lines.len() < LINES_MAX {
            lines.push((begin.elapsed().as_secs_f64(), line));
        }
    }
    let status = child
        .wait()
        .map_err(|e| format!("cannot wait for it: {}", e))?;
    let picture = svg(&lines);
    if picture.len() > BYTES_MAX {
        return Err(format!(
            "the picture has {} bytes, over {}",
            picture.len(),
            BYTES_MAX
        ));
    }
    let path = root.join(FILE);
    fs::write(&path, picture).map_err(|e| format!("cannot write {}: {}", path.display(), e))?;
    println!("Written to {}", path.display());
    Ok(status.code().unwrap_or(1))
}

/// The picture: a terminal in which the lines appear one after the other. Whoever wants nothing to
/// move sees all of them at once.
fn svg(lines: &[Line]) -> String {
    let columns = lines
        .iter()
        .map(|(_, text)| text.chars().count())
        .max()
        .unwrap_or(0);
    let width = 2 * BORDER + (columns as f64 * CHARACTER).ceil() as usize;
    let height = 2 * BORDER + lines.len() * LINE;
    let end = lines
        .last()
        .map_or(0.0, |(time, _)| *time)
        .max(f64::MIN_POSITIVE);
    let mut picture = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"cargo xtask demo\">\n\
         <style>\n\
         text {{ font: 12px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; \
         fill: #d8dee9; white-space: pre; opacity: 0; animation: show 0.01s forwards; }}\n\
         @keyframes show {{ to {{ opacity: 1; }} }}\n\
         @media (prefers-reduced-motion: reduce) {{ text {{ animation: none; opacity: 1; }} }}\n\
         </style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#1e2430\"/>\n",
        width = width,
        height = height,
    );
    for (number, (time, text)) in lines.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = writeln!(
            picture,
            "<text x=\"{}\" y=\"{}\" xml:space=\"preserve\" \
             style=\"animation-delay:{:.2}s\">{}</text>",
            BORDER,
            BORDER + (number + 1) * LINE - 5,
            time / end * SECONDS,
            escaped(text),
        );
    }
    picture.push_str("</svg>\n");
    picture
}

/// A text as it stands in XML, without what no document may hold.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            c if c.is_control() => {}
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_appear_at_their_time_and_are_escaped() {
        let lines = [
            (0.0, "$ a".to_owned()),
            (5.0, "<&>\u{1b}[1m".into()),
            (10.0, "z".into()),
        ];
        let picture = svg(&lines);
        assert!(
            picture.contains("animation-delay:0.00s\">$ a</text>"),
            "{}",
            picture
        );
        assert!(
            picture.contains("animation-delay:6.00s\">&lt;&amp;&gt;[1m</text>"),
            "{}",
            picture
        );
        assert!(
            picture.contains("animation-delay:12.00s\">z</text>"),
            "{}",
            picture
        );
    }

    #[test]
    fn nothing_printed_is_a_picture_too() {
        assert!(svg(&[]).ends_with("</svg>\n"));
    }
}
