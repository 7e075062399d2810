//! Character escapes of other formats: `\u00e9` in JSON, `&nbsp;` in HTML, `%20` in a URL. Searches
//! for words in foreign text decode them first.

/// Decodes the `uXXXX` at the start of `text`, including surrogate pairs; returns the character and
/// the length of the escape.
pub fn decode_unicode(text: &str) -> Option<(char, usize)> {
    let unit = |text: &str| {
        text.strip_prefix('u').and_then(|rest| u16::from_str_radix(rest.get(..4)?, 16).ok())
    };
    let first = unit(text)?;
    if let Some(c) = char::from_u32(u32::from(first)) {
        return Some((c, 5));
    }
    let rest = text.get(5..)?;
    let slashes = rest.bytes().take_while(|byte| *byte == b'\\').count();
    let second = unit(rest.get(slashes..)?)?;
    let c = char::decode_utf16([first, second]).next()?.ok()?;
    Some((c, 5 + slashes + 5))
}

/// Decodes the HTML entity at the start of `text`; returns the character and the entity's length.
pub fn decode_entity(text: &str) -> Option<(char, usize)> {
    const NAMED_ENTITIES: [(&str, char); 17] = [
        ("nbsp", '\u{a0}'),
        ("amp", '&'),
        ("quot", '"'),
        ("apos", '\''),
        ("lt", '<'),
        ("gt", '>'),
        ("shy", '\u{ad}'),
        ("colon", ':'),
        ("equals", '='),
        ("auml", 'ä'),
        ("ouml", 'ö'),
        ("uuml", 'ü'),
        ("szlig", 'ß'),
        ("eacute", 'é'),
        ("egrave", 'è'),
        ("ntilde", 'ñ'),
        ("zwnj", '\u{200c}'),
    ];
    const MAX_ENTITY_BYTES: usize = 10;
    let rest = text.strip_prefix('&')?;
    let length = rest.bytes().take(MAX_ENTITY_BYTES).position(|byte| byte == b';')?;
    let name = rest.get(..length)?;
    let c = match name.strip_prefix('#') {
        Some(number) => {
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(code)?
        }
        None => NAMED_ENTITIES.iter().find(|(known, _)| *known == name)?.1,
    };
    Some((c, length + 2))
}

/// Decodes one or more `%XX` at the start of `text`; returns the character and the length of the
/// escape.
pub fn decode_percent(text: &str) -> Option<(char, usize)> {
    let bytes = text.as_bytes();
    let unit = |at: usize| {
        let [b'%', a, b] = bytes.get(at..at + 3)? else { return None };
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        u8::try_from(digit(a)? << 4 | digit(b)?).ok()
    };
    let first = unit(0)?;
    let many = match first {
        0..=0x7F => return Some((char::from(first), 3)),
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => return None,
    };
    let mut units = [first; 4];
    for (at, slot) in units.iter_mut().enumerate().take(many).skip(1) {
        *slot = unit(3 * at)?;
    }
    let c = std::str::from_utf8(&units[..many]).ok()?.chars().next()?;
    Some((c, 3 * many))
}

/// Invisible characters inside words: soft hyphens, joiners, direction marks, variation selectors.
pub fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0000}'..='\u{e01ef}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes_stand_for_characters() {
        for (read, text, expected) in [
            (decode_unicode as fn(&str) -> Option<(char, usize)>, "u00f1a", Some(('ñ', 5))),
            (decode_unicode, "ud83d\\ude00x", Some(('😀', 11))),
            (decode_unicode, "ud83d", None),
            (decode_unicode, "u00g1", None),
            (decode_entity, "&nbsp;x", Some(('\u{a0}', 6))),
            (decode_entity, "&#61;", Some(('=', 5))),
            (decode_entity, "&#x3A;", Some((':', 6))),
            (decode_entity, "& so on;", None),
            (decode_entity, "&#x110000;", None),
            (decode_percent, "%20", Some((' ', 3))),
            (decode_percent, "%C3%A9t", Some(('é', 6))),
            (decode_percent, "%e3%83%91", Some(('パ', 9))),
            (decode_percent, "%C3", None),
            (decode_percent, "%C3%28", None),
            (decode_percent, "%zz", None),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_them_fall(text in "[u&%#x;0-9a-fé\\\\]{0,12}") {
            for read in [decode_unicode, decode_entity, decode_percent] {
                if let Some((_, length)) = read(&text) {
                    prop_assert!(text.is_char_boundary(length));
                }
            }
        }
    }
}
