//! The curves of a run, as SVG: good answers per second, the 99th percentile of the time to first token, requests in flight.

use std::fmt::Write as _;

use super::random::natural_logarithm;
use super::tally::{Bin, Tally, float, quantile};
use super::workload::Workload;
use super::{SECOND, Us};

const WIDTH: f64 = 900.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 880.0;
const PANEL: f64 = 190.0;
const GAP: f64 = 50.0;
const TOP: f64 = 60.0;
/// Of the settings, in their order: told apart without colour by their lightness too.
const COLOURS: [&str; 4] = ["#9a9a9a", "#d1495b", "#2e86ab", "#1b6e3c"];

/// How a panel's values are put on its height.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Axis {
    Linear,
    Logarithmic,
}

struct Panel<'a> {
    title: &'a str,
    axis: Axis,
    /// The lowest and the highest value.
    range: (f64, f64),
    ticks: Vec<f64>,
    /// Drawn across, with what it says.
    line: Option<(f64, &'a str)>,
    /// A bin's value, if it has one.
    value: &'a dyn Fn(&Bin) -> Option<f64>,
}

/// The picture.
pub fn svg(workload: &Workload, tallies: &[Tally]) -> String {
    let seconds = tallies.first().map_or(1.0, |tally| float(tally.bin_length()) / float(SECOND));
    let micros = seconds * float(SECOND);
    let good = |bin: &Bin| Some(float(bin.good) / seconds);
    let late = |bin: &Bin| (!bin.ttfts.is_empty()).then(|| quantile(&bin.ttfts, 99).max(0.1));
    let held = |bin: &Bin| Some(float(bin.held) / micros);
    let most = |value: &dyn Fn(&Bin) -> Option<f64>| {
        tallies.iter().flat_map(|tally| &tally.bins).filter_map(value).fold(1.0, f64::max)
    };
    let panels = [
        even("good answers per second", most(&good), &good),
        Panel {
            title: "time to first token, 99th percentile, seconds (logarithmic)",
            axis: Axis::Logarithmic,
            range: (0.1, 100.0),
            ticks: vec![0.1, 1.0, 10.0, 100.0],
            line: Some((3.0, "objective")),
            value: &late,
        },
        even("requests in flight", most(&held), &held),
    ];
    let height = TOP + (PANEL + GAP) * 3.0 - 15.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    legend(&mut text, tallies);
    let mut top = TOP;
    for panel in &panels {
        phases(&mut text, workload, top);
        draw(&mut text, panel, tallies, workload.length, top);
        top += PANEL + GAP;
    }
    text.push_str("</svg>\n");
    text
}

/// A linear panel from 0 up to a round number above `most`.
fn even<'a>(title: &'a str, most: f64, value: &'a dyn Fn(&Bin) -> Option<f64>) -> Panel<'a> {
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0];
    let step = steps.into_iter().find(|step| most / step <= 6.0).unwrap_or(10_000.0);
    let count = (most / step).ceil();
    let ticks = std::iter::successors(Some(0.0), |tick| Some(tick + step).filter(|tick| *tick <= count * step));
    Panel { title, axis: Axis::Linear, range: (0.0, count * step), ticks: ticks.collect(), line: None, value }
}

impl Panel<'_> {
    fn y(&self, top: f64, value: f64) -> f64 {
        let (low, high) = self.range;
        let part = match self.axis {
            Axis::Linear => (value - low) / (high - low),
            Axis::Logarithmic => natural_logarithm(value / low) / natural_logarithm(high / low),
        };
        top + PANEL * (1.0 - part.clamp(0.0, 1.0))
    }
}

// Writing to a String cannot fail.
fn draw(text: &mut String, panel: &Panel<'_>, tallies: &[Tally], length: Us, top: f64) {
    let bottom = top + PANEL;
    let _ = writeln!(text, "<text x=\"{LEFT}\" y=\"{:.1}\" font-weight=\"bold\">{}</text>", top - 8.0, panel.title);
    for tick in &panel.ticks {
        let y = panel.y(top, *tick);
        let _ = writeln!(text, "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>");
        let (x, y) = (LEFT - 8.0, y + 4.0);
        let _ = writeln!(text, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{tick}</text>");
    }
    let minutes = length / SECOND / 60;
    for minute in (0..=minutes).step_by(10) {
        let x = x_of(minute * 60 * SECOND, length);
        let y = bottom + 16.0;
        let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{minute} min</text>");
    }
    if let Some((value, name)) = panel.line {
        let y = panel.y(top, value);
        let dashed = "stroke=\"#333333\" stroke-dasharray=\"6 4\"";
        let _ = writeln!(text, "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\" {dashed}/>");
        let (x, y) = (RIGHT - 4.0, y - 5.0);
        let _ = writeln!(text, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{name}</text>");
    }
    for (tally, colour) in tallies.iter().zip(COLOURS) {
        let middle = |at: usize| tally.bin_length() * u64::try_from(at).unwrap_or(0) + tally.bin_length() / 2;
        let points = tally.bins.iter().enumerate();
        let points = points.filter_map(|(at, bin)| Some((x_of(middle(at), length), panel.y(top, (panel.value)(bin)?))));
        let points: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let points = points.join(" ");
        let _ = writeln!(text, "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
    }
}

/// The time of overload, shaded; the first panel says how many sessions come.
fn phases(text: &mut String, workload: &Workload, top: f64) {
    let mut from = LEFT;
    for (end, percent) in workload.phases() {
        let to = x_of(end, workload.length);
        let fill = if percent > 100 { "#fbf3e0" } else { "#ffffff" };
        let width = to - from;
        let place = format!("x=\"{from:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{PANEL}\"");
        let _ = writeln!(text, "<rect {place} fill=\"{fill}\" stroke=\"#dddddd\"/>");
        if top <= TOP {
            let (x, y) = (from + 6.0, top + PANEL - 8.0);
            let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"#666666\">new sessions: {percent} %</text>");
        }
        from = to;
    }
}

fn legend(text: &mut String, tallies: &[Tally]) {
    let mut x = LEFT;
    for (tally, colour) in tallies.iter().zip(COLOURS) {
        let to = x + 24.0;
        let _ =
            writeln!(text, "<line x1=\"{x}\" y1=\"22\" x2=\"{to}\" y2=\"22\" stroke=\"{colour}\" stroke-width=\"3\"/>");
        let _ = writeln!(text, "<text x=\"{}\" y=\"26\">{}</text>", x + 30.0, tally.name);
        x += 205.0;
    }
}

fn x_of(at: Us, length: Us) -> f64 {
    LEFT + (RIGHT - LEFT) * float(at) / float(length.max(1))
}
