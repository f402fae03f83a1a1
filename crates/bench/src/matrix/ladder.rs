//! Which load is offered next: first ever more until frames are lost, then closer and closer to
//! that limit, and at last the shares of it that the plan names.

/// The first load, in frames a second.
const FIRST: u64 = 1000;
/// The load doubles so often at most.
const DOUBLINGS: usize = 9;
/// Steps between the last load that was kept up with and the first that was not.
const HALVINGS: usize = 3;
/// Who sends back so much of what is offered keeps up.
const KEEPS_UP: f64 = 0.98;

/// A load that was offered, and what came back of it, both in frames a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// What was offered.
    pub offered: f64,
    /// What came back.
    pub reflected: f64,
}

impl Point {
    fn keeps_up(&self) -> bool {
        self.reflected >= KEEPS_UP * self.offered
    }
}

/// The next load after these; `None` if all have been offered.
pub fn next(done: &[Point], percent: &[u32]) -> Option<u64> {
    let doubled = done.iter().take(DOUBLINGS + 1);
    let kept = doubled.take_while(|point| point.keeps_up()).count();
    if kept == done.len() && kept <= DOUBLINGS {
        return Some(FIRST << kept);
    }
    // Doubling may have ended without a load that was too much.
    let searched = (kept + 1).min(DOUBLINGS + 1);
    let halvings = if kept > DOUBLINGS { 0 } else { HALVINGS };
    if done.len() < searched + halvings {
        return Some(middle(&done[..done.len()]));
    }
    let number = done.len() - searched - halvings;
    let share = f64::from(*percent.get(number)?) / 100.0;
    let limit = limit(&done[..searched + halvings])?;
    Some(((limit * share) as u64).max(1))
}

/// Between the highest load that was kept up with and the lowest that was not.
fn middle(done: &[Point]) -> u64 {
    let loads = |keeps_up| {
        done.iter()
            .filter(move |point| point.keeps_up() == keeps_up)
    };
    let good = loads(true).map(|point| point.offered).fold(0.0, f64::max);
    let bad = loads(false)
        .map(|point| point.offered)
        .fold(f64::INFINITY, f64::min);
    let bad = if bad.is_finite() { bad } else { 2.0 * good };
    (((good + bad) / 2.0) as u64).max(1)
}

/// The load limit: the most that ever came back, in frames a second.
pub fn limit(done: &[Point]) -> Option<f64> {
    let most = done.iter().map(|point| point.reflected).fold(0.0, f64::max);
    (most > 0.0).then_some(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All loads of somebody who sends back so much at most, and less under more load.
    fn loads(most: f64, percent: &[u32]) -> Vec<u64> {
        let mut done = Vec::new();
        let mut loads = Vec::new();
        while let Some(load) = next(&done, percent) {
            assert!(loads.len() < 100);
            loads.push(load);
            let offered = load as f64;
            let reflected = if offered <= most { offered } else { most / 2.0 };
            done.push(Point { offered, reflected });
        }
        loads
    }

    #[test]
    fn the_limit_is_searched_and_then_shared() {
        assert_eq!(
            loads(5500.0, &[50, 100]),
            [1000, 2000, 4000, 8000, 6000, 5000, 5500, 2750, 5500]
        );
    }

    #[test]
    fn who_never_keeps_up_is_measured_all_the_same() {
        assert_eq!(loads(200.0, &[100]), [1000, 500, 250, 125, 125]);
    }

    #[test]
    fn the_search_ends() {
        let loads = loads(1e9, &[100]);
        assert_eq!(loads.len(), DOUBLINGS + 2);
        assert_eq!(loads.last(), Some(&(FIRST << DOUBLINGS)));
    }

    #[test]
    fn nobody_who_sends_nothing_back_has_a_limit() {
        assert_eq!(limit(&[]), None);
        let mut done = Vec::new();
        while let Some(load) = next(&done, &[50]) {
            assert!(done.len() < 100);
            done.push(Point {
                offered: load as f64,
                reflected: 0.0,
            });
        }
        assert_eq!(done.len(), 1 + HALVINGS);
    }
}
