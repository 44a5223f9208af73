//! Bytes as text and back.

use ironstone::{Error, Result};
use std::fmt::Write;

/// The bytes that the user wrote.
pub fn parse(text: &str, hex: bool) -> Result<Vec<u8>> {
    if !hex {
        return Ok(text.as_bytes().to_vec());
    }
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text).as_bytes();
    let digit = |&byte: &u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(pair).collect();
    bytes.ok_or_else(|| Error::invalid_argument(format!("{text}: not pairs of hexadecimal digits")))
}

/// `bytes` on one line: hexadecimal, or as text in which control characters, backslashes and what is
/// no UTF-8 are escaped.
pub fn print(bytes: &[u8], hex: bool) -> String {
    let mut text = String::with_capacity(bytes.len() + 2);
    if hex {
        text.push_str("0x");
        bytes.iter().for_each(|byte| write!(text, "{byte:02X}").expect("text grows"));
        return text;
    }
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                c if c.is_control() => {
                    c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| escape(&mut text, byte))
                }
                c => text.push(c),
            }
        }
        chunk.invalid().iter().for_each(|&byte| escape(&mut text, byte));
    }
    text
}

fn escape(text: &mut String, byte: u8) {
    write!(text, "\\x{byte:02x}").expect("text grows");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_goes_both_ways() {
        assert_eq!(parse("0x00fF", true).unwrap(), [0, 255]);
        assert!(parse("", true).unwrap().is_empty());
        assert_eq!(print(&[0, 255], true), "0x00FF");
        assert!(parse("0x123", true).is_err() && parse("zz", true).is_err());
    }

    #[test]
    fn text_stays_on_its_line() {
        assert_eq!(print("1|2|é".as_bytes(), false), "1|2|é");
        assert_eq!(print(b"a\n\\\xff\0", false), "a\\x0a\\\\\\xff\\x00");
    }
}
