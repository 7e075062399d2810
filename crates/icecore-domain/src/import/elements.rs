//! A streaming scanner that splits a JSON document of any length into the elements of its list.
//!
//! Only one element is in memory at a time. The scanner looks only for the end of an element, so an
//! element that is broken, too long or too deep does not affect the rest of the document.

use super::{MAX_DEPTH, MAX_PIECE_BYTES};

/// An element.
#[derive(Debug, PartialEq, Eq)]
pub struct ListElement<'a> {
    /// Its number, from 1.
    pub number: usize,
    /// The element, or why it cannot be read.
    pub json: Result<&'a str, ElementError>,
}

/// Why an element cannot be read, as the end of the sentence "this element …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ElementError {
    /// Longer than the buffer limit.
    #[error("has more than {MAX_PIECE_BYTES} bytes")]
    TooLong,
    #[error("nests deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// Not UTF-8.
    #[error("is not UTF-8")]
    NotText,
    /// The document ends within it.
    #[error("is incomplete: the file ends within it")]
    CutOff,
    /// Not part of a list.
    #[error("is not JSON")]
    NotJson,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanState {
    /// Before or between values of the whole document.
    Outside,
    /// In the object around the list, of which only the field names matter.
    Around,
    /// In the list, before or between its elements.
    Between,
    /// In an element.
    Within,
    /// In a line that is no JSON.
    Beside,
}

/// Splits a document into elements.
#[derive(Debug)]
pub struct ElementScanner {
    /// The fields of a wrapping object whose lists are read. If empty, an object is an element
    /// itself.
    lists: &'static [&'static str],
    state: ScanState,
    /// The nesting depth within the element or the wrapping object.
    depth: usize,
    quoted: bool,
    escaped: bool,
    /// A number or literal; it ends where the next token begins.
    bare: bool,
    element: Vec<u8>,
    wrong: Option<ElementError>,
    number: usize,
    /// The list is in an object.
    nested: bool,
    /// The element is in a list.
    listed: bool,
    /// The last string of the wrapping object; a field name if a colon follows.
    name: Vec<u8>,
    /// The name of a wanted list was read.
    wanted: bool,
}

impl ElementScanner {
    /// Scans a document that is a list, or an object with its list in one of these fields.
    pub fn new(lists: &'static [&'static str]) -> Self {
        Self {
            lists,
            state: ScanState::Outside,
            depth: 0,
            quoted: false,
            escaped: false,
            bare: false,
            element: Vec::new(),
            wrong: None,
            number: 0,
            nested: false,
            listed: false,
            name: Vec::new(),
            wanted: false,
        }
    }

    /// Scans the next bytes and emits the elements that end in them.
    pub fn feed(&mut self, bytes: &[u8], tell: &mut dyn FnMut(ListElement<'_>)) {
        let mut at = 0;
        while at < bytes.len() {
            at = match self.state {
                ScanState::Outside => self.scan_outside(bytes, at, tell),
                ScanState::Around => self.scan_wrapper(bytes, at),
                ScanState::Between => self.scan_between(bytes, at),
                ScanState::Within => self.scan_element(bytes, at, tell),
                ScanState::Beside => self.scan_invalid_line(bytes, at),
            };
        }
    }

    /// Ends the document and emits an unfinished element as an error.
    pub fn finish(&mut self, tell: &mut dyn FnMut(ListElement<'_>)) {
        match self.state {
            ScanState::Within if self.bare => self.emit_element(tell),
            ScanState::Within => {
                tell(ListElement { number: self.number, json: Err(ElementError::CutOff) })
            }
            ScanState::Between | ScanState::Around => {
                self.number += 1;
                tell(ListElement { number: self.number, json: Err(ElementError::CutOff) });
            }
            ScanState::Outside | ScanState::Beside => {}
        }
        self.state = ScanState::Outside;
    }

    fn scan_outside(
        &mut self,
        bytes: &[u8],
        at: usize,
        tell: &mut dyn FnMut(ListElement<'_>),
    ) -> usize {
        match bytes[at] {
            b'[' => {
                (self.state, self.nested) = (ScanState::Between, false);
                at + 1
            }
            b'{' if !self.lists.is_empty() => {
                (self.state, self.depth, self.nested, self.wanted) =
                    (ScanState::Around, 1, true, false);
                at + 1
            }
            b'{' => self.begin_element(at, false),
            byte if byte.is_ascii_whitespace() || byte >= 0x80 => at + 1,
            _ => {
                self.number += 1;
                tell(ListElement { number: self.number, json: Err(ElementError::NotJson) });
                self.state = ScanState::Beside;
                at + 1
            }
        }
    }

    /// Skips to the end of the line; the next line may be JSON.
    fn scan_invalid_line(&mut self, bytes: &[u8], at: usize) -> usize {
        match memchr::memchr(b'\n', &bytes[at..]) {
            Some(end) => {
                self.state = ScanState::Outside;
                at + end + 1
            }
            None => bytes.len(),
        }
    }

    fn scan_wrapper(&mut self, bytes: &[u8], at: usize) -> usize {
        if self.quoted {
            let end = self.scan_string(bytes, at);
            if self.depth == 1 && self.name.len() < 64 {
                self.name.extend_from_slice(&bytes[at..end]);
            }
            return end;
        }
        match bytes[at] {
            b'"' => {
                self.quoted = true;
                self.name.clear();
            }
            b':' if self.depth == 1 => {
                let name = self.name.strip_suffix(b"\"").unwrap_or(&self.name);
                self.wanted = self.lists.iter().any(|list| list.as_bytes() == name);
            }
            b',' if self.depth == 1 => self.wanted = false,
            b'[' if self.depth == 1 && self.wanted => self.state = ScanState::Between,
            b'[' | b'{' => self.depth += 1,
            b']' | b'}' => {
                self.depth -= 1;
                if self.depth == 0 {
                    self.state = ScanState::Outside;
                }
            }
            _ => {}
        }
        at + 1
    }

    fn scan_between(&mut self, bytes: &[u8], at: usize) -> usize {
        match bytes[at] {
            b']' => {
                self.state = if self.nested { ScanState::Around } else { ScanState::Outside };
                (self.depth, self.wanted) = (1, false);
                at + 1
            }
            // A surplus brace must not stop the scan.
            byte if byte.is_ascii_whitespace() || matches!(byte, b',' | b'}') => at + 1,
            _ => self.begin_element(at, true),
        }
    }

    fn begin_element(&mut self, at: usize, listed: bool) -> usize {
        self.listed = listed;
        (self.state, self.depth, self.quoted, self.escaped, self.bare) =
            (ScanState::Within, 0, false, false, false);
        self.element.clear();
        self.wrong = None;
        self.number += 1;
        at
    }

    /// The end of the current string: after its closing quote, or at the end of the bytes.
    fn scan_string(&mut self, bytes: &[u8], from: usize) -> usize {
        let mut at = from;
        if self.escaped {
            self.escaped = false;
            at += 1;
        }
        while at < bytes.len() {
            match memchr::memchr2(b'"', b'\\', &bytes[at..]) {
                None => return bytes.len(),
                Some(found) if bytes[at + found] == b'"' => {
                    self.quoted = false;
                    return at + found + 1;
                }
                Some(found) => at += found + 2,
            }
        }
        // The escaped byte is the first of the next chunk.
        self.escaped = at > bytes.len();
        bytes.len()
    }

    fn scan_element(
        &mut self,
        bytes: &[u8],
        from: usize,
        tell: &mut dyn FnMut(ListElement<'_>),
    ) -> usize {
        let mut at = from;
        let mut done = false;
        while at < bytes.len() && !done {
            if self.quoted {
                at = self.scan_string(bytes, at);
                done = self.depth == 0 && !self.quoted;
                continue;
            }
            match bytes[at] {
                b'"' => self.quoted = true,
                b'{' | b'[' => {
                    self.depth += 1;
                    if self.depth > MAX_DEPTH {
                        self.wrong = Some(ElementError::TooDeep);
                    }
                }
                b'}' | b']' if self.depth > 0 => {
                    self.depth -= 1;
                    done = self.depth == 0;
                }
                // A number or literal.
                b'}' | b']' | b',' if self.depth == 0 => {
                    self.push_bytes(&bytes[from..at]);
                    self.emit_element(tell);
                    return at;
                }
                _ => self.bare |= self.depth == 0,
            }
            at += 1;
        }
        self.push_bytes(&bytes[from..at]);
        if done {
            self.emit_element(tell);
        }
        at
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        if self.element.len() + bytes.len() > MAX_PIECE_BYTES {
            self.wrong = Some(ElementError::TooLong);
        }
        if self.wrong.is_some() {
            self.element = Vec::new();
        } else {
            self.element.extend_from_slice(bytes);
        }
    }

    fn emit_element(&mut self, tell: &mut dyn FnMut(ListElement<'_>)) {
        // A document that is itself an element may be followed by others.
        self.state = if self.listed { ScanState::Between } else { ScanState::Outside };
        let json = match self.wrong {
            Some(wrong) => Err(wrong),
            None => std::str::from_utf8(&self.element).map_err(|_| ElementError::NotText),
        };
        tell(ListElement { number: self.number, json });
        // Release the memory of one long conversation.
        if self.element.capacity() > MAX_PIECE_BYTES / 8 {
            self.element = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn scan_elements(
        document: &[u8],
        lists: &'static [&'static str],
        chunk: usize,
    ) -> Vec<Result<String, ElementError>> {
        let (mut elements, mut found) = (ElementScanner::new(lists), Vec::new());
        let mut tell = |piece: ListElement<'_>| {
            found.push(piece.json.map(str::to_owned));
            assert_eq!(piece.number, found.len());
        };
        document.chunks(chunk.max(1)).for_each(|bytes| elements.feed(bytes, &mut tell));
        elements.finish(&mut tell);
        found
    }

    fn check(
        document: &str,
        lists: &'static [&'static str],
        expected: &[Result<&str, ElementError>],
    ) {
        let expected: Vec<Result<String, ElementError>> =
            expected.iter().map(|one| one.map(str::to_owned)).collect();
        for chunk in 1..=document.len().max(1) {
            assert_eq!(
                scan_elements(document.as_bytes(), lists, chunk),
                expected,
                "{document} in pieces of {chunk}"
            );
        }
    }

    // P1
    #[test]
    fn a_list_is_taken_apart_wherever_it_stands() {
        check("", &[], &[]);
        check(" [ ] ", &[], &[]);
        check(
            r#"[{"a":1}, [2] ,"x]", 3,null]"#,
            &[],
            &[Ok(r#"{"a":1}"#), Ok("[2]"), Ok("\"x]\""), Ok("3"), Ok("null")],
        );
        check(r#"[{"a":"\\\"}]"},{}]"#, &[], &[Ok(r#"{"a":"\\\"}]"}"#), Ok("{}")]);
        check("{\"a\":[1]}\n{\"b\":2}", &[], &[Ok("{\"a\":[1]}"), Ok("{\"b\":2}")]);
        check("\u{feff}[1]", &[], &[Ok("1")]);
        check(
            r#"{"count":2,"x":{"results":[9]},"results":[{"a":1},{"b":2}],"next":null}"#,
            &["results"],
            &[Ok(r#"{"a":1}"#), Ok(r#"{"b":2}"#)],
        );
        check(
            r#"{"entities":[1],"relations":[2]}"#,
            &["entities", "relations"],
            &[Ok("1"), Ok("2")],
        );
        check(r#"{"name":"results","list":[1]}"#, &["results"], &[]);
    }

    // P1
    #[test]
    fn what_is_broken_costs_itself() {
        assert_eq!(
            scan_elements(b"[1,{\"a\":", &[], 3),
            [Ok("1".to_owned()), Err(ElementError::CutOff)]
        );
        let deep = format!("[{}{},7]", "[".repeat(MAX_DEPTH + 1), "]".repeat(MAX_DEPTH + 1));
        assert_eq!(
            scan_elements(deep.as_bytes(), &[], 64),
            [Err(ElementError::TooDeep), Ok("7".to_owned())]
        );
        assert_eq!(
            scan_elements(b"[\"\xff\",7]", &[], 64),
            [Err(ElementError::NotText), Ok("7".to_owned())]
        );
        assert_eq!(scan_elements(b"nothing", &[], 64), [Err(ElementError::NotJson)]);
        let long = format!("[\"{}\",7]", "x".repeat(MAX_PIECE_BYTES));
        assert_eq!(
            scan_elements(long.as_bytes(), &[], 1 << 20),
            [Err(ElementError::TooLong), Ok("7".to_owned())]
        );
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            any::<String>().prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map("[a-z\"\\\\]{0,4}", inner, 0..4).prop_map(|map| {
                    Value::from(map.into_iter().collect::<serde_json::Map<_, _>>())
                }),
            ]
        })
    }

    proptest! {
        // P1
        #[test]
        fn any_list_comes_apart_into_its_elements(list in prop::collection::vec(json(), 0..6), pretty: bool, chunk in 1..40_usize) {
            let text = if pretty { serde_json::to_string_pretty(&list) } else { serde_json::to_string(&list) }.unwrap();
            let found: Vec<Value> = scan_elements(text.as_bytes(), &[], chunk).into_iter().map(|one| serde_json::from_str(&one.unwrap()).unwrap()).collect();
            prop_assert_eq!(found, list);
        }

        #[test]
        fn no_bytes_make_it_fall(bytes in prop::collection::vec(prop_oneof![prop::sample::select(b"[]{},:\"\\ a1\n".to_vec()), any::<u8>()], 0..200), chunk in 1..20_usize) {
            let found = scan_elements(&bytes, &[], chunk);
            prop_assert_eq!(&found, &scan_elements(&bytes, &[], 1_000));
            scan_elements(&bytes, &["a"], chunk);
        }
    }
}
