//! Programs: what a file says of components that are no images.

use super::{Reading, Value, is_plain, texts, unknown, whole};
use crate::up::component::Component;
use crate::up::program::Program;
use std::path::PathBuf;

/// What makes a component a program, in place of an image.
pub(super) const PROGRAM: &str = "program";
/// What a file may say of a program alone, and in which form.
pub(super) const KEYS: [(&str, &str); 4] = [
    (
        PROGRAM,
        "texts, as in program = [\"nginx\", \"-g\", \"daemon off;\"]",
    ),
    (
        "environment",
        "a table of texts, as in environment = { LANG = \"C\" }",
    ),
    ("folder", "a path, as in folder = \"/srv\""),
    (
        "files",
        "a table, as in files.read = [\"/etc/nginx\"] or files.write = [\"/var/log\"]",
    ),
];
/// What is said of files.
const FILES: [&str; 2] = ["read", "write"];
/// What a file may say of programs and images alike.
const OF_BOTH: [&str; 4] = ["net", "after", "restart", "limits"];
/// Most words of a program, and most variables and paths of each kind: what fits into a message
/// that starts it, with room to spare.
const COUNT_MAX: usize = 256;

impl Reading<'_> {
    /// Takes a key of a program's, if it is one.
    pub(super) fn of_program(
        &mut self,
        program: &mut Program,
        key: &str,
        value: &Value<'_>,
    ) -> Option<()> {
        let (_, form) = KEYS.iter().find(|(name, _)| *name == key)?;
        let done = match key {
            PROGRAM => self.words(value).map(|words| program.words = words),
            "environment" => variables(program, value),
            "folder" => {
                let text = value.get_ref().as_str().filter(|text| is_plain(text));
                let folder = text.and_then(|text| whole(self.folder, text));
                folder.map(|folder| program.folder = Some(folder.into()))
            }
            _ => self.files(program, value),
        };
        if done.is_none() {
            self.mistake(value.span().start, format_args!("{key}: expected {form}"));
        }
        Some(())
    }

    /// A program and its arguments. A path is one from the file's folder on.
    fn words(&self, value: &Value<'_>) -> Option<Vec<String>> {
        let mut words = texts(value).filter(|words| words.len() <= COUNT_MAX)?;
        let name = words.first_mut().filter(|name| !name.is_empty())?;
        if name.contains('/') {
            *name = whole(self.folder, name)?;
        }
        Some(words)
    }

    fn files(&mut self, program: &mut Program, value: &Value<'_>) -> Option<()> {
        for (key, value) in value.get_ref().as_table()? {
            let paths = texts(value).filter(|paths| paths.len() <= COUNT_MAX);
            let paths = paths.into_iter().flatten();
            let paths: Option<Vec<_>> = paths.map(|path| whole(self.folder, &path)).collect();
            let paths = paths.filter(|paths| !paths.is_empty())?;
            let paths = paths.into_iter().map(PathBuf::from).collect();
            match key.get_ref().as_ref() {
                "read" => program.read = paths,
                "write" => program.write = paths,
                typed => {
                    let what = unknown(typed, FILES.into_iter());
                    self.mistake(key.span().start, format_args!("files: {what}"));
                }
            }
        }
        Some(())
    }

    /// Whether what is said of a component is for what it is: an image or a program, and not both.
    pub(super) fn of_its_kind(&mut self, component: &Component, keys: &[(usize, String)]) {
        let name = &component.name;
        let is_of_program = |key: &str| KEYS.iter().any(|(of_program, _)| *of_program == key);
        let has = |wanted: &str| keys.iter().any(|(_, key)| key == wanted);
        match (has("image"), has(PROGRAM)) {
            (false, false) => {
                let what = format!(
                    "{name} has no image; write image = \"{name}.spt\", or program = [\"...\"]"
                );
                return self.mistake(component.place, what);
            }
            (true, true) => {
                let what = format!("{name} has an image and a program; it is one of them");
                return self.mistake(component.place, what);
            }
            _ => {}
        }
        for (place, key) in keys {
            let (is_wrong, of) = match has(PROGRAM) {
                true => (
                    !is_of_program(key) && !OF_BOTH.contains(&key.as_str()),
                    "images",
                ),
                false => (is_of_program(key), "programs"),
            };
            if is_wrong {
                let what = format!("{key} is for {of}; leave it away");
                self.mistake(*place, what);
            }
        }
        if has(PROGRAM) {
            self.link_of(component);
        }
    }

    /// A program has one link, and nothing else.
    fn link_of(&mut self, component: &Component) {
        let is_joined = matches!(&component.devices[..], [only] if only.link().is_some());
        if !is_joined {
            let what = format!(
                "{} needs one link to a stack, and has no other network; write net.stack = \
                 \"link:NAME\"",
                component.name
            );
            self.mistake(component.place, what);
        }
        if component.progress.is_some() {
            let what = format!(
                "limits.progress of {}: a program does not count its turns; leave it away",
                component.name
            );
            self.mistake(component.place, what);
        }
    }
}

/// Variables of the environment.
fn variables(program: &mut Program, value: &Value<'_>) -> Option<()> {
    let table = value.get_ref().as_table()?;
    if table.len() > COUNT_MAX {
        return None;
    }
    for (name, value) in table {
        let name = name.get_ref().as_ref();
        let is_name = !name.is_empty() && !name.contains('=') && is_plain(name);
        let value = value.get_ref().as_str().filter(|text| is_plain(text));
        let value = value.filter(|_| is_name)?;
        program
            .environment
            .insert(name.to_owned(), value.to_owned());
    }
    Some(())
}
