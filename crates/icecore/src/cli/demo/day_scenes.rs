//! The first part: a day with the ledger, as a list of commands.

/// One scene; an empty command is an edit by hand.
pub struct DemoScene {
    pub at: &'static str,
    /// Its title; empty if it continues the previous scene.
    pub why: &'static str,
    pub command: &'static [&'static str],
}

/// The scenes, in order.
pub const DAY_SCENES: &[DemoScene] = &[
    DemoScene {
        at: "2026-02-02T09:05:00+01:00",
        why: "A rule that must never be broken",
        command: &["remember", "Never deploy on Fridays", "--priority", "P0", "--entity", "shop"],
    },
    DemoScene {
        at: "2026-02-02T09:10:00+01:00",
        why: "A commitment with a due date, waiting on other people",
        command: &[
            "remember",
            "Send the offer to Client X",
            "--due",
            "2026-02-12",
            "--waiting-on",
            "the lawyers",
            "--entity",
            "Client X",
        ],
    },
    DemoScene {
        at: "2026-02-03T11:00:00+01:00",
        why: "A decision and a fact; the type is read from the words",
        command: &["remember", "Decided on one price for all", "--entity", "pricing"],
    },
    DemoScene {
        at: "2026-02-03T11:02:00+01:00",
        why: "",
        command: &[
            "remember",
            "The marketing budget is 500 EUR",
            "--entity",
            "pricing",
            "--priority",
            "P1",
        ],
    },
    DemoScene {
        at: "2026-02-13T09:30:00+01:00",
        why: "Ten days later the fact has changed, but the old one is not superseded",
        command: &[
            "remember",
            "The marketing budget is 600 EUR",
            "--entity",
            "pricing",
            "--priority",
            "P1",
        ],
    },
    DemoScene {
        at: "2026-02-13T09:31:00+01:00",
        why: "Conflicts are never resolved silently",
        command: &["conflicts"],
    },
    DemoScene {
        at: "2026-02-13T09:32:00+01:00",
        why: "",
        command: &["retract", "EVT-20260203-002", "--note", "raised to 600"],
    },
    DemoScene {
        at: "2026-02-13T10:00:00+01:00",
        why: "The day's log, a line at a time",
        command: &["log", "Call with Client X: they want two more weeks"],
    },
    DemoScene {
        at: "2026-02-13T10:05:00+01:00",
        why: "An assistant ends its session with a section in the same file, in its own editor",
        command: &[],
    },
    DemoScene {
        at: "2026-02-13T10:06:00+01:00",
        why: "icecore imports it",
        command: &["commitments"],
    },
    DemoScene {
        at: "2026-02-13T16:00:00+01:00",
        why: "Done",
        command: &["close", "EVT-20260202-002", "--note", "sent, with the lawyers' blessing"],
    },
    DemoScene {
        at: "2026-02-13T16:01:00+01:00",
        why: "Where does a line come from?",
        command: &["why", "EVT-20260213-004"],
    },
    DemoScene {
        at: "2026-02-13T17:00:00+01:00",
        why: "Is everything still there?",
        command: &["verify"],
    },
    DemoScene {
        at: "2026-02-04T09:00:00+01:00",
        why: "What was known on the 4th?",
        command: &["events"],
    },
];

/// The text an assistant appends to the log.
pub const PRIORITY_EXTRACTS: &str = "\n## Priority Extracts\n- [P1 commitment] Move the deadline of Client X to 2026-02-27\n- [P2] Client X prefers calls in the morning\n";
