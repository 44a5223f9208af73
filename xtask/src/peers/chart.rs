//! Charts with a line for each engine.

use plotters::prelude::*;
use std::path::Path;

/// What a chart shows over what.
pub struct Axes<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
}

/// An engine's points.
pub struct Line {
    /// What the legend says.
    pub name: String,
    /// In order.
    pub points: Vec<(u64, f64)>,
}

const SIZE: (u32, u32) = (760, 420);

/// Writes an SVG file; both axes are logarithmic. Answers false and writes nothing if there is no point.
pub fn lines(path: &Path, axes: &Axes<'_>, lines: &[Line]) -> Result<bool, String> {
    let points = || lines.iter().flat_map(|line| line.points.iter().copied()).filter(|(_, y)| *y > 0.0);
    let (Some(first), Some(last)) = (points().map(|(x, _)| x).min(), points().map(|(x, _)| x).max()) else {
        return Ok(false);
    };
    let least = points().map(|(_, y)| y).fold(f64::INFINITY, f64::min) / 1.5;
    let most = points().map(|(_, y)| y).fold(0.0, f64::max) * 1.5;
    draw(path, axes, lines, (first as f64, last.max(first + 1) as f64), (least, most))
        .map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(true)
}

fn draw(
    path: &Path,
    axes: &Axes<'_>,
    lines: &[Line],
    (first, last): (f64, f64),
    (least, most): (f64, f64),
) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(axes.title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(35)
        .y_label_area_size(70)
        .build_cartesian_2d((first..last).log_scale().base(2.0), (least..most).log_scale())?;
    chart
        .configure_mesh()
        .x_desc(axes.x)
        .y_desc(axes.y)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| if *y < 10.0 { format!("{y:.2}") } else { format!("{y:.0}") })
        .light_line_style(WHITE)
        .draw()?;
    for (index, line) in lines.iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        let points = line.points.iter().filter(|(_, y)| *y > 0.0).map(|&(x, y)| (x as f64, y));
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)).point_size(3))?
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(3)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_names_its_engines() {
        let path = std::env::temp_dir().join(format!("ironstone-chart-{}.svg", std::process::id()));
        let line = |name: &str, factor: f64| Line {
            name: name.to_owned(),
            points: [1u64, 2, 4, 8].map(|x| (x, x as f64 * factor)).to_vec(),
        };
        let (ours, theirs) = (line("ironstone", 1e5), line("rocksdb", 5e4));
        let axes = Axes { title: "reads", x: "readers", y: "operations per second" };
        assert!(super::lines(&path, &axes, &[ours, theirs]).unwrap());
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(
            text.starts_with("<svg")
                && text.contains("ironstone")
                && text.contains("rocksdb")
                && text.contains("readers")
        );
        let empty = Line { name: "none".to_owned(), points: Vec::new() };
        assert!(!super::lines(&path, &axes, &[empty]).unwrap());
        assert!(!path.exists());
    }
}
