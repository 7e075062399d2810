//! An editor for JSON settings files with comments and trailing commas.
//!
//! A text is parsed into a tree with spans. A change is a splice of the text: everything else stays
//! byte for byte, whatever its indentation, line ends or comments. Removing an inserted value
//! restores the text exactly.

use std::ops::Range;

/// Deeper nesting is refused.
const MAX_DEPTH: usize = 200;

/// A syntax error with its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct SettingsSyntaxError {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub what: String,
}

impl SettingsSyntaxError {
    /// A syntax error at this byte of a text.
    pub fn at(text: &str, byte: usize, what: impl Into<String>) -> Self {
        let before = &text[..text.floor_char_boundary(byte)];
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let begin = before.rfind('\n').map_or(0, |at| at + 1);
        let column = before[begin..].trim_start_matches('\u{FEFF}').chars().count() + 1;
        Self { line, column, what: what.into() }
    }
}

/// A value to write, with ordered fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonTree {
    Text(String),
    Number(u64),
    List(Vec<JsonTree>),
    Object(Vec<(&'static str, JsonTree)>),
}

impl JsonTree {
    /// A string.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// A list of strings.
    pub fn texts<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::List(texts.into_iter().map(Self::text).collect())
    }
}

/// A parsed value with its span.
#[derive(Debug, Clone)]
pub struct JsonNode {
    pub span: Range<usize>,
    pub kind: NodeKind,
}

/// The kind and content of a value.
#[derive(Debug, Clone)]
pub enum NodeKind {
    Object(Vec<ObjectMember>),
    List(Vec<JsonNode>),
    /// A string, unescaped.
    Text(String),
    Flag(bool),
    /// A number or null, as written.
    Other(String),
}

/// A field of an object.
#[derive(Debug, Clone)]
pub struct ObjectMember {
    /// Its name, unescaped.
    pub name: String,
    /// Where its name begins.
    pub start: usize,
    pub value: JsonNode,
}

impl JsonNode {
    /// The field of that name; the last one, as every reader of JSON has it.
    pub fn get(&self, name: &str) -> Option<&JsonNode> {
        self.members().iter().rev().find(|member| member.name == name).map(|member| &member.value)
    }

    /// Its fields; empty if it is not an object.
    pub fn members(&self) -> &[ObjectMember] {
        if let NodeKind::Object(members) = &self.kind { members } else { &[] }
    }

    /// Its items; empty if it is not a list.
    pub fn items(&self) -> &[JsonNode] {
        if let NodeKind::List(items) = &self.kind { items } else { &[] }
    }

    /// Its string, if it is one.
    pub fn text(&self) -> Option<&str> {
        if let NodeKind::Text(text) = &self.kind { Some(text) } else { None }
    }

    /// Whether it is an object.
    pub fn is_object(&self) -> bool {
        matches!(self.kind, NodeKind::Object(_))
    }

    /// Whether it equals a value to write, in any order of fields.
    pub fn equals(&self, tree: &JsonTree) -> bool {
        match (&self.kind, tree) {
            (NodeKind::Text(mine), JsonTree::Text(theirs)) => mine == theirs,
            (NodeKind::Other(mine), JsonTree::Number(theirs)) => *mine == theirs.to_string(),
            (NodeKind::List(mine), JsonTree::List(theirs)) => {
                mine.len() == theirs.len() && mine.iter().zip(theirs).all(|(a, b)| a.equals(b))
            }
            (NodeKind::Object(mine), JsonTree::Object(theirs)) => {
                mine.len() == theirs.len()
                    && theirs
                        .iter()
                        .all(|(name, tree)| self.get(name).is_some_and(|node| node.equals(tree)))
            }
            _ => false,
        }
    }
}

/// A step of a path to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathStep<'a> {
    Field(&'a str),
    Item(usize),
}

/// Parses a text with one JSON value; `None` if it is empty.
pub fn parse(text: &str) -> Result<Option<JsonNode>, SettingsSyntaxError> {
    let mut reader = JsonParser { text, at: 0 };
    if text.starts_with('\u{FEFF}') {
        reader.at = '\u{FEFF}'.len_utf8();
    }
    reader.skip_trivia()?;
    if reader.at == text.len() {
        return Ok(None);
    }
    let node = reader.value(0)?;
    reader.skip_trivia()?;
    if reader.at < text.len() {
        return Err(reader.error_here("there is text after the end"));
    }
    Ok(Some(node))
}

struct JsonParser<'a> {
    text: &'a str,
    at: usize,
}

impl JsonParser<'_> {
    fn error_here(&self, what: impl Into<String>) -> SettingsSyntaxError {
        SettingsSyntaxError::at(self.text, self.at, what)
    }

    fn rest(&self) -> &[u8] {
        &self.text.as_bytes()[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    /// Skips blanks and comments.
    fn skip_trivia(&mut self) -> Result<(), SettingsSyntaxError> {
        loop {
            match self.rest() {
                [b' ' | b'\t' | b'\r' | b'\n', ..] => self.at += 1,
                [b'/', b'/', ..] => {
                    self.at += self
                        .rest()
                        .iter()
                        .position(|byte| *byte == b'\n')
                        .unwrap_or(self.rest().len())
                }
                [b'/', b'*', ..] => match self.text[self.at + 2..].find("*/") {
                    Some(end) => self.at += end + 4,
                    None => return Err(self.error_here("this comment has no end")),
                },
                _ => return Ok(()),
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<JsonNode, SettingsSyntaxError> {
        if depth > MAX_DEPTH {
            return Err(self.error_here("this is nested too deeply"));
        }
        let start = self.at;
        let kind = match self.peek() {
            Some(b'{') => NodeKind::Object(self.object(depth)?),
            Some(b'[') => NodeKind::List(self.list(depth)?),
            Some(b'"') => NodeKind::Text(self.string()?),
            Some(b'-' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z') => self.word()?,
            Some(_) => return Err(self.error_here("a value was expected here")),
            None => return Err(self.error_here("the text ends where a value was expected")),
        };
        Ok(JsonNode { span: start..self.at, kind })
    }

    /// After an item: whether another one follows; consumes the separator.
    fn has_next(&mut self, close: u8) -> Result<bool, SettingsSyntaxError> {
        self.skip_trivia()?;
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                self.skip_trivia()?;
                if self.peek() == Some(close) {
                    self.at += 1;
                    return Ok(false);
                }
                Ok(true)
            }
            Some(byte) if byte == close => {
                self.at += 1;
                Ok(false)
            }
            Some(_) => {
                Err(self.error_here(format!("`,` or `{}` was expected here", char::from(close))))
            }
            None => {
                Err(self.error_here(format!("the text ends before its `{}`", char::from(close))))
            }
        }
    }

    /// Enters an object or list: whether there is anything in it.
    fn enter(&mut self, close: u8) -> Result<bool, SettingsSyntaxError> {
        self.at += 1;
        self.skip_trivia()?;
        if self.peek() == Some(close) {
            self.at += 1;
            return Ok(false);
        }
        Ok(true)
    }

    fn object(&mut self, depth: usize) -> Result<Vec<ObjectMember>, SettingsSyntaxError> {
        let mut members = Vec::new();
        if !self.enter(b'}')? {
            return Ok(members);
        }
        loop {
            let start = self.at;
            match self.peek() {
                Some(b'"') => {}
                None => return Err(self.error_here("the text ends before its `}`")),
                Some(_) => return Err(self.error_here("a name in double quotes was expected here")),
            }
            let name = self.string()?;
            self.skip_trivia()?;
            if self.peek() != Some(b':') {
                return Err(self.error_here("`:` was expected here"));
            }
            self.at += 1;
            self.skip_trivia()?;
            let value = self.value(depth + 1)?;
            members.push(ObjectMember { name, start, value });
            if !self.has_next(b'}')? {
                return Ok(members);
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Vec<JsonNode>, SettingsSyntaxError> {
        let mut items = Vec::new();
        if !self.enter(b']')? {
            return Ok(items);
        }
        loop {
            items.push(self.value(depth + 1)?);
            if !self.has_next(b']')? {
                return Ok(items);
            }
        }
    }

    fn string(&mut self) -> Result<String, SettingsSyntaxError> {
        let start = self.at;
        let mut end = start + 1;
        let bytes = self.text.as_bytes();
        loop {
            match bytes.get(end) {
                None | Some(b'\n') => return Err(self.error_here("this text has no closing quote")),
                Some(b'\\') => end += 2,
                Some(b'"') => break,
                Some(_) => end += 1,
            }
        }
        let raw = self.text.get(start..=end).unwrap_or_default();
        let text = serde_json::from_str(raw).map_err(|_| {
            self.error_here("this text has an escape or a character that JSON does not know")
        })?;
        self.at = end + 1;
        Ok(text)
    }

    fn word(&mut self) -> Result<NodeKind, SettingsSyntaxError> {
        let ends = |byte: &u8| !matches!(byte, b'-' | b'+' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z');
        let length = self.rest().iter().position(ends).unwrap_or(self.rest().len());
        let word = &self.text[self.at..self.at + length];
        let kind = match word {
            "true" => NodeKind::Flag(true),
            "false" => NodeKind::Flag(false),
            "null" => NodeKind::Other(word.to_owned()),
            _ if serde_json::from_str::<&serde_json::value::RawValue>(word).is_ok() => {
                NodeKind::Other(word.to_owned())
            }
            _ => return Err(self.error_here("this is not a JSON value")),
        };
        self.at += length;
        Ok(kind)
    }
}

/// The style of a text: its line ends and indentation.
struct TextStyle {
    line_end: &'static str,
    indent: String,
}

impl TextStyle {
    fn of(text: &str, root: &JsonNode) -> Self {
        let line_end = match text.find('\n') {
            Some(at) if text[..at].ends_with('\r') => "\r\n",
            _ => "\n",
        };
        Self { line_end, indent: first_indent(text, root, "").unwrap_or_else(|| "  ".into()) }
    }
}

/// The indentation of the first child that begins a line, relative to its parent.
fn first_indent(text: &str, node: &JsonNode, outer: &str) -> Option<String> {
    let children: Vec<(usize, &JsonNode)> = match &node.kind {
        NodeKind::Object(members) => {
            members.iter().map(|member| (member.start, &member.value)).collect()
        }
        NodeKind::List(items) => items.iter().map(|item| (item.span.start, item)).collect(),
        _ => return None,
    };
    for (start, child) in children {
        let own = indent_at(text, start);
        let deeper = own.and_then(|own| own.strip_prefix(outer)).filter(|more| !more.is_empty());
        if let Some(more) = deeper {
            return Some(more.to_owned());
        }
        if let Some(found) = first_indent(text, child, own.unwrap_or(outer)) {
            return Some(found);
        }
    }
    None
}

/// The indentation before this byte, if only blanks precede it on its line.
fn indent_at(text: &str, at: usize) -> Option<&str> {
    let begin = text[..at].rfind('\n').map_or(0, |at| at + 1);
    let before = text[begin..at].trim_start_matches('\u{FEFF}');
    before.bytes().all(|byte| matches!(byte, b' ' | b'\t')).then_some(before)
}

/// The indentation of the line of this byte.
fn line_indent(text: &str, at: usize) -> &str {
    let begin = text[..at].rfind('\n').map_or(0, |at| at + 1);
    let line = text[begin..at].trim_start_matches('\u{FEFF}');
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

fn json_quote(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

/// Renders a value on several lines; lists of plain values stay on one.
fn render(tree: &JsonTree, style: &TextStyle, indent: &str) -> String {
    let is_plain = |tree: &JsonTree| !matches!(tree, JsonTree::List(_) | JsonTree::Object(_));
    let inner = format!("{indent}{}", style.indent);
    let block = |open: &str, lines: Vec<String>, close: &str| {
        let separator = format!(",{}{inner}", style.line_end);
        format!(
            "{open}{}{inner}{}{}{indent}{close}",
            style.line_end,
            lines.join(&separator),
            style.line_end
        )
    };
    match tree {
        JsonTree::List(items) if !items.is_empty() && !items.iter().all(is_plain) => {
            block("[", items.iter().map(|item| render(item, style, &inner)).collect(), "]")
        }
        JsonTree::Object(fields) if !fields.is_empty() => {
            let field = |(name, tree): &(&'static str, JsonTree)| {
                format!("{}: {}", json_quote(name), render(tree, style, &inner))
            };
            block("{", fields.iter().map(field).collect(), "}")
        }
        plain => render_compact(plain),
    }
}

/// Renders a value on one line.
fn render_compact(tree: &JsonTree) -> String {
    match tree {
        JsonTree::Text(text) => json_quote(text),
        JsonTree::Number(number) => number.to_string(),
        JsonTree::List(items) => {
            format!("[{}]", items.iter().map(render_compact).collect::<Vec<_>>().join(", "))
        }
        JsonTree::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, tree)| format!("{}: {}", json_quote(name), render_compact(tree)))
                .collect();
            if fields.is_empty() { "{}".into() } else { format!("{{ {} }}", fields.join(", ")) }
        }
    }
}

/// Renders a value as a document with a line break at the end.
pub fn render_document(tree: &JsonTree) -> String {
    render(tree, &TextStyle { line_end: "\n", indent: "  ".into() }, "") + "\n"
}

/// The value at this path.
pub fn find<'a>(node: &'a JsonNode, way: &[PathStep<'_>]) -> Option<&'a JsonNode> {
    way.iter().try_fold(node, |node, step| match step {
        PathStep::Field(name) => node.get(name),
        PathStep::Item(at) => node.items().get(*at),
    })
}

fn splice(text: &str, splices: &[(Range<usize>, String)]) -> String {
    let mut out = text.to_owned();
    // From the end, so that earlier offsets stay valid.
    for (range, with) in splices.iter().rev() {
        out.replace_range(range.clone(), with);
    }
    out
}

/// Replaces the value at this path; unchanged if there is none, or it is equal.
pub fn replace_value(
    text: &str,
    way: &[PathStep<'_>],
    tree: &JsonTree,
) -> Result<String, SettingsSyntaxError> {
    let Some(root) = parse(text)? else { return Ok(text.to_owned()) };
    let Some(node) = find(&root, way).filter(|node| !node.equals(tree)) else {
        return Ok(text.to_owned());
    };
    let style = TextStyle::of(text, &root);
    let one_line =
        !text[node.span.clone()].contains('\n') && !text[root.span.clone()].contains('\n');
    let with = if one_line {
        render_compact(tree)
    } else {
        render(tree, &style, line_indent(text, node.span.start))
    };
    Ok(splice(text, &[(node.span.clone(), with)]))
}

/// Appends a field or item to the object or list at `way`, which must exist.
pub fn insert_value(
    text: &str,
    way: &[PathStep<'_>],
    name: Option<&str>,
    tree: &JsonTree,
) -> Result<String, SettingsSyntaxError> {
    let Some(root) = parse(text)? else { return Ok(text.to_owned()) };
    let Some(node) = find(&root, way) else { return Ok(text.to_owned()) };
    let style = TextStyle::of(text, &root);
    let last = match &node.kind {
        NodeKind::Object(members) => {
            members.last().map(|member| (member.start, member.value.span.end))
        }
        NodeKind::List(items) => items.last().map(|item| (item.span.start, item.span.end)),
        _ => return Ok(text.to_owned()),
    };
    let written = |tree: &JsonTree, indent: Option<&str>| {
        let value =
            indent.map_or_else(|| render_compact(tree), |indent| render(tree, &style, indent));
        name.map_or_else(|| value.clone(), |name| format!("{}: {value}", json_quote(name)))
    };
    let Some((start, end)) = last else {
        // Comments inside the empty brackets stay before it.
        let outer = line_indent(text, node.span.start).to_owned();
        let inner = format!("{outer}{}", style.indent);
        let inside = text[node.span.start + 1..node.span.end - 1].trim_end();
        let place = node.span.start + 1 + inside.len()..node.span.end - 1;
        let with = format!(
            "{}{inner}{}{}{outer}",
            style.line_end,
            written(tree, Some(&inner)),
            style.line_end
        );
        return Ok(splice(text, &[(place, with)]));
    };
    let (comma, after) = item_end(text, end)?;
    let new = match indent_at(text, start) {
        Some(indent) => format!("{}{indent}{}", style.line_end, written(tree, Some(indent))),
        None if text[end..after].contains("//") => {
            format!("{}{}", style.line_end, written(tree, None))
        }
        None => format!(" {}", written(tree, None)),
    };
    Ok(match comma {
        // Keep the style of a trailing comma.
        Some(_) => splice(text, &[(after..after, format!("{new},"))]),
        None => splice(text, &[(end..end, ",".into()), (after..after, new)]),
    })
}

/// The comma after an item, if there is one, and the end of the blanks and comments on the item's
/// line.
fn item_end(text: &str, end: usize) -> Result<(Option<usize>, usize), SettingsSyntaxError> {
    let mut reader = JsonParser { text, at: end };
    reader.skip_trivia()?;
    let comma = (reader.peek() == Some(b',')).then_some(reader.at);
    let mut at = comma.map_or(end, |comma| comma + 1);
    let mut after = at;
    loop {
        match &text.as_bytes()[at..] {
            [b' ' | b'\t', ..] => at += 1,
            [b'/', b'/', rest @ ..] => {
                let line = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                at += 2 + line;
                // The line may end with CRLF.
                after = if text[..at].ends_with('\r') { at - 1 } else { at };
                return Ok((comma, after));
            }
            [b'/', b'*', ..] => match text[at + 2..].find("*/") {
                Some(close) if !text[at..at + 2 + close].contains('\n') => {
                    at += close + 4;
                    after = at;
                }
                _ => return Ok((comma, after)),
            },
            _ => return Ok((comma, after)),
        }
    }
}

/// Removes the field or item at `way` with its comma and line.
pub fn remove_value(text: &str, way: &[PathStep<'_>]) -> Result<String, SettingsSyntaxError> {
    let (Some(root), Some((last, above))) = (parse(text)?, way.split_last()) else {
        return Ok(text.to_owned());
    };
    let Some(holder) = find(&root, above) else { return Ok(text.to_owned()) };
    let spans: Vec<(usize, usize)> = match &holder.kind {
        NodeKind::Object(members) => {
            members.iter().map(|member| (member.start, member.value.span.end)).collect()
        }
        NodeKind::List(items) => {
            items.iter().map(|item| (item.span.start, item.span.end)).collect()
        }
        _ => return Ok(text.to_owned()),
    };
    let number = match last {
        PathStep::Field(name) => holder.members().iter().rposition(|member| member.name == *name),
        PathStep::Item(at) => Some(*at),
    };
    let Some((at, (start, end))) = number.and_then(|at| Some((at, *spans.get(at)?))) else {
        return Ok(text.to_owned());
    };
    let (comma, after) = item_end(text, end)?;
    // Remove the blanks and the line break before it, nothing before them.
    let before = text[..start].trim_end_matches([' ', '\t']);
    let from = match before.strip_suffix('\n') {
        Some(line) => line.strip_suffix('\r').unwrap_or(line).len(),
        None => before.len(),
    };
    let previous = at.checked_sub(1).map(|at| spans[at].1);
    let Some(previous) = previous else {
        // The first item: the rest moves up. The only item: the brackets close again.
        let to = if spans.len() == 1 && text[from.min(holder.span.end)..start].contains('\n') {
            let close = text[..holder.span.end - 1].trim_end_matches([' ', '\t']).len();
            let close = text[..close]
                .strip_suffix('\n')
                .map_or(close, |line| line.strip_suffix('\r').unwrap_or(line).len());
            let only_blanks = text[after.max(comma.map_or(0, |at| at + 1))..holder.span.end - 1]
                .trim()
                .is_empty();
            if only_blanks && from == holder.span.start + 1 {
                holder.span.end - 1
            } else {
                close.max(after)
            }
        } else {
            after
        };
        return Ok(splice(text, &[(from..to, String::new())]));
    };
    if comma.is_some() {
        return Ok(splice(text, &[(from..after, String::new())]));
    }
    // The last item without a comma: the previous item loses its comma.
    let (own, _) = item_end(text, previous)?;
    match own {
        Some(own) => {
            Ok(splice(text, &[(own..own + 1, String::new()), (from..after, String::new())]))
        }
        None => Ok(splice(text, &[(from..after, String::new())])),
    }
}
