//! The test corpus of secrets: hundreds of formats, filled in with the same random characters at
//! every run.
//!
//! No file contains a secret: `corpus.txt` has the formats, and the random parts are generated
//! here.

/// A text with a secret in it.
#[derive(Debug, Clone)]
pub struct Row {
    /// The name of the format.
    pub name: &'static str,
    /// The text before the secret.
    pub before: String,
    pub secret: String,
    /// The text after the secret.
    pub after: String,
    /// The generated parts of the secret; none of them may be found anywhere afterwards.
    pub made: Vec<String>,
}

impl Row {
    /// The whole text.
    pub fn text(&self) -> String {
        [self.before.as_str(), &self.secret, &self.after].concat()
    }
}

/// Every row.
pub fn rows() -> Vec<Row> {
    let lines = include_str!("corpus.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .enumerate()
        .map(|(at, line)| {
            row(line, &mut Dice(0x9E37_79B9_7F4A_7C15 ^ (at as u64 + 1).wrapping_mul(0xD129_8A2B)))
        })
        .collect()
}

fn row(line: &'static str, dice: &mut Dice) -> Row {
    let (name, text) = line.split_once(" | ").unwrap_or_else(|| panic!("no ` | ` in {line}"));
    let (before, rest) = text.split_once("{{").unwrap_or_else(|| panic!("no {{{{ in {line}"));
    let (form, after) = rest.split_once("}}").unwrap_or_else(|| panic!("no }}}} in {line}"));
    let plain =
        |text: &str| text.replace("\\\\", "\u{0}").replace("\\n", "\n").replace('\u{0}', "\\");
    let (mut secret, mut made) = (String::new(), Vec::new());
    let mut parts = form.split('<');
    secret.push_str(&plain(parts.next().unwrap_or_default()));
    for part in parts {
        let (class, rest) = part.split_once('>').unwrap_or_else(|| panic!("no > in {line}"));
        let filled = dice.fill(class, &secret);
        if filled.len() >= 8 {
            made.push(filled.clone());
        }
        secret.push_str(&filled);
        secret.push_str(&plain(rest));
    }
    if made.is_empty() {
        made.push(secret.clone());
    }
    Row { name, before: plain(before), secret, after: plain(after), made }
}

/// A deterministic random generator.
struct Dice(u64);

impl Dice {
    fn throw(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize
    }

    fn one<'a>(&mut self, of: &'a str) -> &'a str {
        let at = self.throw() % of.len();
        &of[at..=at]
    }

    fn fill(&mut self, class: &str, before: &str) -> String {
        const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
        const LOWER: &str = "abcdefghijklmnopqrstuvwxyz";
        const DIGITS: &str = "0123456789";
        let (class, check) =
            class.split_once(',').map_or((class, false), |(class, _)| (class, true));
        let Some(kind) = class.chars().next() else { return String::new() };
        let many: usize = class[1..].parse().unwrap_or(0);
        let alphabet = match kind {
            'a' | 'b' | 'u' => [UPPER, LOWER, DIGITS].concat(),
            'A' => [UPPER, DIGITS].concat(),
            'l' => [LOWER, DIGITS].concat(),
            'h' => [DIGITS, "abcdef"].concat(),
            'H' => [DIGITS, "ABCDEF"].concat(),
            'd' => DIGITS.into(),
            'z' => "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz".into(),
            '2' => [UPPER, "234567"].concat(),
            'U' => {
                let hex = |dice: &mut Self, many: usize| dice.fill(&format!("h{many}"), "");
                return [8, 4, 4, 4, 12].map(|many| hex(self, many)).join("-");
            }
            'k' => {
                return (0..many)
                    .map(|at| {
                        self.one(if at % 2 == 0 { "bdfgklmprtvz" } else { "aeiou" }).to_owned()
                    })
                    .collect();
            }
            'w' => return (0..many).map(|_| self.word()).collect::<Vec<_>>().join(" "),
            _ => panic!("no class {kind}"),
        };
        // Punctuation occurs only inside, as a key in a sentence never begins or ends with it.
        let wide = match kind {
            'b' => format!("{alphabet}+/"),
            'u' => format!("{alphabet}-_"),
            _ => alphabet.clone(),
        };
        let mut filled: String = (0..many)
            .map(|at| {
                self.one(if at == 0 || at + 1 == many { &alphabet } else { &wide }).to_owned()
            })
            .collect();
        if check {
            filled.pop();
            let digits: Vec<u32> =
                format!("{before}{filled}").chars().filter_map(|c| c.to_digit(10)).collect();
            let doubled = |digit: u32| if digit > 4 { digit * 2 - 9 } else { digit * 2 };
            let sum: u32 = digits
                .iter()
                .rev()
                .enumerate()
                .map(|(at, digit)| if at % 2 == 0 { doubled(*digit) } else { *digit })
                .sum();
            filled.push_str(&((10 - sum % 10) % 10).to_string());
        }
        filled
    }

    fn word(&mut self) -> String {
        let letters = 3 + self.throw() % 6;
        (0..letters)
            .map(|at| self.one(if at % 2 == 0 { "bcdfglmnprst" } else { "aeiou" }).to_owned())
            .collect()
    }
}
