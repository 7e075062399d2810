//! An editor for JSON settings files with comments and trailing commas.
//!
//! A text is parsed into a tree with spans. A change is a splice of the text: everything else stays
//! byte for byte, whatever its indentation, line ends or comments. Removing an inserted value
//! restores the text exactly.

use std::ops::Range;

/// Deeper nesting is refused.
const MOST_DEEP: usize = 200;

/// A syntax error with its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct Malformed {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub what: String,
}

impl Malformed {
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
pub enum Tree {
    Text(String),
    Number(u64),
    List(Vec<Tree>),
    Object(Vec<(&'static str, Tree)>),
}

impl Tree {
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
pub struct Node {
    pub span: Range<usize>,
    pub kind: Kind,
}

/// The kind and content of a value.
#[derive(Debug, Clone)]
pub enum Kind {
    Object(Vec<Member>),
    List(Vec<Node>),
    /// A string, unescaped.
    Text(String),
    Flag(bool),
    /// A number or null, as written.
    Other(String),
}

/// A field of an object.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its name, unescaped.
    pub name: String,
    /// Where its name begins.
    pub start: usize,
    pub value: Node,
}

impl Node {
    /// The field of that name; the last one, as every reader of JSON has it.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.members().iter().rev().find(|member| member.name == name).map(|member| &member.value)
    }

    /// Its fields; empty if it is not an object.
    pub fn members(&self) -> &[Member] {
        if let Kind::Object(members) = &self.kind { members } else { &[] }
    }

    /// Its items; empty if it is not a list.
    pub fn items(&self) -> &[Node] {
        if let Kind::List(items) = &self.kind { items } else { &[] }
    }

    /// Its string, if it is one.
    pub fn text(&self) -> Option<&str> {
        if let Kind::Text(text) = &self.kind { Some(text) } else { None }
    }

    /// Whether it is an object.
    pub fn is_object(&self) -> bool {
        matches!(self.kind, Kind::Object(_))
    }

    /// Whether it equals a value to write, in any order of fields.
    pub fn says(&self, tree: &Tree) -> bool {
        match (&self.kind, tree) {
            (Kind::Text(mine), Tree::Text(theirs)) => mine == theirs,
            (Kind::Other(mine), Tree::Number(theirs)) => *mine == theirs.to_string(),
            (Kind::List(mine), Tree::List(theirs)) => {
                mine.len() == theirs.len() && mine.iter().zip(theirs).all(|(a, b)| a.says(b))
            }
            (Kind::Object(mine), Tree::Object(theirs)) => {
                mine.len() == theirs.len()
                    && theirs
                        .iter()
                        .all(|(name, tree)| self.get(name).is_some_and(|node| node.says(tree)))
            }
            _ => false,
        }
    }
}

/// A step of a path to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    Field(&'a str),
    Item(usize),
}

/// Parses a text with one JSON value; `None` if it is empty.
pub fn read(text: &str) -> Result<Option<Node>, Malformed> {
    let mut reader = Reader { text, at: 0 };
    if text.starts_with('\u{FEFF}') {
        reader.at = '\u{FEFF}'.len_utf8();
    }
    reader.trivia()?;
    if reader.at == text.len() {
        return Ok(None);
    }
    let node = reader.value(0)?;
    reader.trivia()?;
    if reader.at < text.len() {
        return Err(reader.wrong("there is text after the end"));
    }
    Ok(Some(node))
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn wrong(&self, what: impl Into<String>) -> Malformed {
        Malformed::at(self.text, self.at, what)
    }

    fn rest(&self) -> &[u8] {
        &self.text.as_bytes()[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    /// Skips blanks and comments.
    fn trivia(&mut self) -> Result<(), Malformed> {
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
                    None => return Err(self.wrong("this comment has no end")),
                },
                _ => return Ok(()),
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, Malformed> {
        if depth > MOST_DEEP {
            return Err(self.wrong("this is nested too deeply"));
        }
        let start = self.at;
        let kind = match self.peek() {
            Some(b'{') => Kind::Object(self.object(depth)?),
            Some(b'[') => Kind::List(self.list(depth)?),
            Some(b'"') => Kind::Text(self.string()?),
            Some(b'-' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z') => self.word()?,
            Some(_) => return Err(self.wrong("a value was expected here")),
            None => return Err(self.wrong("the text ends where a value was expected")),
        };
        Ok(Node { span: start..self.at, kind })
    }

    /// After an item: whether another one follows; consumes the separator.
    fn goes_on(&mut self, close: u8) -> Result<bool, Malformed> {
        self.trivia()?;
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                self.trivia()?;
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
            Some(_) => Err(self.wrong(format!("`,` or `{}` was expected here", char::from(close)))),
            None => Err(self.wrong(format!("the text ends before its `{}`", char::from(close)))),
        }
    }

    /// Enters an object or list: whether there is anything in it.
    fn enter(&mut self, close: u8) -> Result<bool, Malformed> {
        self.at += 1;
        self.trivia()?;
        if self.peek() == Some(close) {
            self.at += 1;
            return Ok(false);
        }
        Ok(true)
    }

    fn object(&mut self, depth: usize) -> Result<Vec<Member>, Malformed> {
        let mut members = Vec::new();
        if !self.enter(b'}')? {
            return Ok(members);
        }
        loop {
            let start = self.at;
            match self.peek() {
                Some(b'"') => {}
                None => return Err(self.wrong("the text ends before its `}`")),
                Some(_) => return Err(self.wrong("a name in double quotes was expected here")),
            }
            let name = self.string()?;
            self.trivia()?;
            if self.peek() != Some(b':') {
                return Err(self.wrong("`:` was expected here"));
            }
            self.at += 1;
            self.trivia()?;
            let value = self.value(depth + 1)?;
            members.push(Member { name, start, value });
            if !self.goes_on(b'}')? {
                return Ok(members);
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Malformed> {
        let mut items = Vec::new();
        if !self.enter(b']')? {
            return Ok(items);
        }
        loop {
            items.push(self.value(depth + 1)?);
            if !self.goes_on(b']')? {
                return Ok(items);
            }
        }
    }

    fn string(&mut self) -> Result<String, Malformed> {
        let start = self.at;
        let mut end = start + 1;
        let bytes = self.text.as_bytes();
        loop {
            match bytes.get(end) {
                None | Some(b'\n') => return Err(self.wrong("this text has no closing quote")),
                Some(b'\\') => end += 2,
                Some(b'"') => break,
                Some(_) => end += 1,
            }
        }
        let raw = self.text.get(start..=end).unwrap_or_default();
        let text = serde_json::from_str(raw).map_err(|_| {
            self.wrong("this text has an escape or a character that JSON does not know")
        })?;
        self.at = end + 1;
        Ok(text)
    }

    fn word(&mut self) -> Result<Kind, Malformed> {
        let ends = |byte: &u8| !matches!(byte, b'-' | b'+' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z');
        let length = self.rest().iter().position(ends).unwrap_or(self.rest().len());
        let word = &self.text[self.at..self.at + length];
        let kind = match word {
            "true" => Kind::Flag(true),
            "false" => Kind::Flag(false),
            "null" => Kind::Other(word.to_owned()),
            _ if serde_json::from_str::<&serde_json::value::RawValue>(word).is_ok() => {
                Kind::Other(word.to_owned())
            }
            _ => return Err(self.wrong("this is not a JSON value")),
        };
        self.at += length;
        Ok(kind)
    }
}

/// The style of a text: its line ends and indentation.
struct Style {
    line_end: &'static str,
    indent: String,
}

impl Style {
    fn of(text: &str, root: &Node) -> Self {
        let line_end = match text.find('\n') {
            Some(at) if text[..at].ends_with('\r') => "\r\n",
            _ => "\n",
        };
        Self { line_end, indent: first_indent(text, root, "").unwrap_or_else(|| "  ".into()) }
    }
}

/// The indentation of the first child that begins a line, relative to its parent.
fn first_indent(text: &str, node: &Node, outer: &str) -> Option<String> {
    let children: Vec<(usize, &Node)> = match &node.kind {
        Kind::Object(members) => {
            members.iter().map(|member| (member.start, &member.value)).collect()
        }
        Kind::List(items) => items.iter().map(|item| (item.span.start, item)).collect(),
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

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

/// Renders a value on several lines; lists of plain values stay on one.
fn rendered(tree: &Tree, style: &Style, indent: &str) -> String {
    let is_plain = |tree: &Tree| !matches!(tree, Tree::List(_) | Tree::Object(_));
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
        Tree::List(items) if !items.is_empty() && !items.iter().all(is_plain) => {
            block("[", items.iter().map(|item| rendered(item, style, &inner)).collect(), "]")
        }
        Tree::Object(fields) if !fields.is_empty() => {
            let field = |(name, tree): &(&'static str, Tree)| {
                format!("{}: {}", quoted(name), rendered(tree, style, &inner))
            };
            block("{", fields.iter().map(field).collect(), "}")
        }
        plain => compact(plain),
    }
}

/// Renders a value on one line.
fn compact(tree: &Tree) -> String {
    match tree {
        Tree::Text(text) => quoted(text),
        Tree::Number(number) => number.to_string(),
        Tree::List(items) => {
            format!("[{}]", items.iter().map(compact).collect::<Vec<_>>().join(", "))
        }
        Tree::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, tree)| format!("{}: {}", quoted(name), compact(tree)))
                .collect();
            if fields.is_empty() { "{}".into() } else { format!("{{ {} }}", fields.join(", ")) }
        }
    }
}

/// Renders a value as a document with a line break at the end.
pub fn whole(tree: &Tree) -> String {
    rendered(tree, &Style { line_end: "\n", indent: "  ".into() }, "") + "\n"
}

/// The value at this path.
pub fn find<'a>(node: &'a Node, way: &[Step<'_>]) -> Option<&'a Node> {
    way.iter().try_fold(node, |node, step| match step {
        Step::Field(name) => node.get(name),
        Step::Item(at) => node.items().get(*at),
    })
}

fn spliced(text: &str, splices: &[(Range<usize>, String)]) -> String {
    let mut out = text.to_owned();
    // From the end, so that earlier offsets stay valid.
    for (range, with) in splices.iter().rev() {
        out.replace_range(range.clone(), with);
    }
    out
}

/// Replaces the value at this path; unchanged if there is none, or it is equal.
pub fn replaced(text: &str, way: &[Step<'_>], tree: &Tree) -> Result<String, Malformed> {
    let Some(root) = read(text)? else { return Ok(text.to_owned()) };
    let Some(node) = find(&root, way).filter(|node| !node.says(tree)) else {
        return Ok(text.to_owned());
    };
    let style = Style::of(text, &root);
    let one_line =
        !text[node.span.clone()].contains('\n') && !text[root.span.clone()].contains('\n');
    let with = if one_line {
        compact(tree)
    } else {
        rendered(tree, &style, line_indent(text, node.span.start))
    };
    Ok(spliced(text, &[(node.span.clone(), with)]))
}

/// Appends a field or item to the object or list at `way`, which must exist.
pub fn added(
    text: &str,
    way: &[Step<'_>],
    name: Option<&str>,
    tree: &Tree,
) -> Result<String, Malformed> {
    let Some(root) = read(text)? else { return Ok(text.to_owned()) };
    let Some(node) = find(&root, way) else { return Ok(text.to_owned()) };
    let style = Style::of(text, &root);
    let last = match &node.kind {
        Kind::Object(members) => members.last().map(|member| (member.start, member.value.span.end)),
        Kind::List(items) => items.last().map(|item| (item.span.start, item.span.end)),
        _ => return Ok(text.to_owned()),
    };
    let written = |tree: &Tree, indent: Option<&str>| {
        let value = indent.map_or_else(|| compact(tree), |indent| rendered(tree, &style, indent));
        name.map_or_else(|| value.clone(), |name| format!("{}: {value}", quoted(name)))
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
        return Ok(spliced(text, &[(place, with)]));
    };
    let (comma, after) = after_item(text, end)?;
    let new = match indent_at(text, start) {
        Some(indent) => format!("{}{indent}{}", style.line_end, written(tree, Some(indent))),
        None if text[end..after].contains("//") => {
            format!("{}{}", style.line_end, written(tree, None))
        }
        None => format!(" {}", written(tree, None)),
    };
    Ok(match comma {
        // Keep the style of a trailing comma.
        Some(_) => spliced(text, &[(after..after, format!("{new},"))]),
        None => spliced(text, &[(end..end, ",".into()), (after..after, new)]),
    })
}

/// The comma after an item, if there is one, and the end of the blanks and comments on the item's
/// line.
fn after_item(text: &str, end: usize) -> Result<(Option<usize>, usize), Malformed> {
    let mut reader = Reader { text, at: end };
    reader.trivia()?;
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
pub fn removed(text: &str, way: &[Step<'_>]) -> Result<String, Malformed> {
    let (Some(root), Some((last, above))) = (read(text)?, way.split_last()) else {
        return Ok(text.to_owned());
    };
    let Some(holder) = find(&root, above) else { return Ok(text.to_owned()) };
    let spans: Vec<(usize, usize)> = match &holder.kind {
        Kind::Object(members) => {
            members.iter().map(|member| (member.start, member.value.span.end)).collect()
        }
        Kind::List(items) => items.iter().map(|item| (item.span.start, item.span.end)).collect(),
        _ => return Ok(text.to_owned()),
    };
    let number = match last {
        Step::Field(name) => holder.members().iter().rposition(|member| member.name == *name),
        Step::Item(at) => Some(*at),
    };
    let Some((at, (start, end))) = number.and_then(|at| Some((at, *spans.get(at)?))) else {
        return Ok(text.to_owned());
    };
    let (comma, after) = after_item(text, end)?;
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
        return Ok(spliced(text, &[(from..to, String::new())]));
    };
    if comma.is_some() {
        return Ok(spliced(text, &[(from..after, String::new())]));
    }
    // The last item without a comma: the previous item loses its comma.
    let (own, _) = after_item(text, previous)?;
    match own {
        Some(own) => {
            Ok(spliced(text, &[(own..own + 1, String::new()), (from..after, String::new())]))
        }
        None => Ok(spliced(text, &[(from..after, String::new())])),
    }
}
