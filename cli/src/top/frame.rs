//! Draws a frame without a terminal and returns it as text, with or without colours.

use super::state::State;
use super::view;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

/// Returns the lines of one frame of this size.
pub fn lines(state: &mut State, (width, height): (u16, u16), colours: bool) -> anyhow::Result<Vec<String>> {
    let mut terminal = Terminal::new(TestBackend::new(width, height))?;
    terminal.draw(|frame| view::draw(frame, state, colours))?;
    let buffer = terminal.backend().buffer();
    Ok((0..height).map(|y| if colours { coloured(buffer, y) } else { plain(buffer, y) }).collect())
}

fn plain(buffer: &Buffer, y: u16) -> String {
    let line: String = row(buffer, y).map(Cell::symbol).collect();
    line.trim_end().to_owned()
}

/// Returns a line with colour codes (ECMA-48 SGR), reset at its end.
fn coloured(buffer: &Buffer, y: u16) -> String {
    let (mut line, mut last) = (String::new(), String::new());
    for cell in row(buffer, y) {
        let code = code(cell);
        if code != last {
            line.push_str(&format!("\x1b[0{code}m"));
            last = code;
        }
        line.push_str(cell.symbol());
    }
    if last.is_empty() { line.trim_end().to_owned() } else { line + "\x1b[0m" }
}

fn row(buffer: &Buffer, y: u16) -> impl Iterator<Item = &Cell> {
    (0..buffer.area.width).filter_map(move |x| buffer.cell((x, y)))
}

/// Returns the part after the 0 of the SGR sequence for this cell's style.
fn code(cell: &Cell) -> String {
    let mut code = String::new();
    let modifiers = [(Modifier::BOLD, 1), (Modifier::DIM, 2), (Modifier::UNDERLINED, 4), (Modifier::REVERSED, 7)];
    for (_, number) in modifiers.iter().filter(|(modifier, _)| cell.modifier.contains(*modifier)) {
        code.push_str(&format!(";{number}"));
    }
    if let Some(number) = number(cell.fg) {
        code.push_str(&format!(";{number}"));
    }
    if let Some(number) = number(cell.bg) {
        code.push_str(&format!(";{}", number + 10));
    }
    code
}

/// Returns the SGR number of a colour that the view uses.
fn number(colour: Color) -> Option<u8> {
    match colour {
        Color::Red => Some(31),
        Color::Green => Some(32),
        Color::Yellow => Some(33),
        Color::Blue => Some(34),
        Color::Magenta => Some(35),
        Color::Cyan => Some(36),
        Color::DarkGray => Some(90),
        _ => None,
    }
}
