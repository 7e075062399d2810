//! The supported clients and the paths of their settings files.

use std::path::{Path, PathBuf};

use super::hooks::{self, HookDialect};
use super::servers::{self, ServerFormat};
use super::{Invocation, SettingsError, codex};

/// A supported client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ClientApp {
    ClaudeCode,
    Codex,
    ClaudeDesktop,
    Cursor,
    #[value(name = "vscode")]
    VsCode,
}

/// The kind of integration: hooks at the client's events, or an MCP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum IntegrationKind {
    Hooks,
    Mcp,
}

/// An operating system, as far as the paths of settings differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperatingSystem {
    Linux,
    Mac,
    Windows,
}

/// What decides the paths of settings on this machine.
#[derive(Debug, Clone)]
pub struct ClientMachine {
    pub system: OperatingSystem,
    /// The user's home directory.
    pub home: PathBuf,
    /// `XDG_CONFIG_HOME`, `APPDATA`.
    pub config: Option<PathBuf>,
    /// `CLAUDE_CONFIG_DIR`.
    pub claude: Option<PathBuf>,
    /// `CODEX_HOME`.
    pub codex: Option<PathBuf>,
}

/// What a settings file configures, and in which format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingsPart {
    Hooks(HookDialect),
    /// The MCP server, in JSON.
    Server(ServerFormat),
    /// The MCP server, in TOML.
    Toml,
}

/// A settings file of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsFile {
    pub part: SettingsPart,
    pub path: PathBuf,
}

impl ClientApp {
    /// Every client.
    pub const ALL: [Self; 5] =
        [Self::ClaudeCode, Self::Codex, Self::ClaudeDesktop, Self::Cursor, Self::VsCode];

    /// Its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::ClaudeDesktop => "claude-desktop",
            Self::Cursor => "cursor",
            Self::VsCode => "vscode",
        }
    }

    /// Its product name.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::Codex => "Codex",
            Self::ClaudeDesktop => "Claude Desktop",
            Self::Cursor => "Cursor",
            Self::VsCode => "VS Code",
        }
    }

    /// The name of its program, if it has one.
    pub fn program(self) -> Option<&'static str> {
        match self {
            Self::ClaudeCode => Some("claude"),
            Self::Codex => Some("codex"),
            Self::ClaudeDesktop => None,
            Self::Cursor => Some("cursor"),
            Self::VsCode => Some("code"),
        }
    }

    /// Other paths of its program, used by its installers and shell aliases.
    pub fn other_programs(self, machine: &ClientMachine) -> Vec<PathBuf> {
        match self {
            Self::ClaudeCode => {
                vec![
                    machine.home.join(".local/bin/claude"),
                    self.folder(machine).join("local/node_modules/.bin/claude"),
                ]
            }
            _ => Vec::new(),
        }
    }

    /// The dialect of its hooks, if it has hooks.
    pub fn dialect(self) -> Option<HookDialect> {
        match self {
            Self::ClaudeCode => Some(HookDialect::ClaudeCode),
            Self::Codex => Some(HookDialect::Codex),
            _ => None,
        }
    }

    /// Whether it is started from the desktop, without the PATH of a shell.
    pub fn is_desktop_app(self) -> bool {
        matches!(self, Self::ClaudeDesktop | Self::Cursor | Self::VsCode)
    }

    /// A folder that exists if the client was ever used.
    pub fn folder(self, machine: &ClientMachine) -> PathBuf {
        match self {
            Self::ClaudeCode => {
                machine.claude.clone().unwrap_or_else(|| machine.home.join(".claude"))
            }
            Self::Codex => machine.codex.clone().unwrap_or_else(|| machine.home.join(".codex")),
            Self::ClaudeDesktop => machine.app_settings_folder().join("Claude"),
            Self::Cursor => machine.home.join(".cursor"),
            Self::VsCode => machine.app_settings_folder().join("Code"),
        }
    }

    /// Its settings files: the user's own, or those of a project.
    pub fn settings_files(
        self,
        machine: &ClientMachine,
        project: Option<&Path>,
    ) -> Result<Vec<SettingsFile>, SettingsError> {
        let own = self.folder(machine);
        let at = |part: SettingsPart, path: PathBuf| SettingsFile { part, path };
        let (claude, codex) =
            (SettingsPart::Hooks(HookDialect::ClaudeCode), SettingsPart::Hooks(HookDialect::Codex));
        let server = SettingsPart::Server(servers::COMMON_FORMAT);
        Ok(match (self, project) {
            (Self::ClaudeCode, None) => {
                // Beside the default folder, but inside a configured one.
                let above = machine.claude.as_ref().unwrap_or(&machine.home);
                vec![at(claude, own.join("settings.json")), at(server, above.join(".claude.json"))]
            }
            (Self::ClaudeCode, Some(project)) => {
                vec![
                    at(claude, project.join(".claude").join("settings.json")),
                    at(server, project.join(".mcp.json")),
                ]
            }
            (Self::Codex, None) => {
                vec![
                    at(codex, own.join("hooks.json")),
                    at(SettingsPart::Toml, own.join("config.toml")),
                ]
            }
            (Self::Codex, Some(project)) => {
                let own = project.join(".codex");
                vec![
                    at(codex, own.join("hooks.json")),
                    at(SettingsPart::Toml, own.join("config.toml")),
                ]
            }
            (Self::ClaudeDesktop, None) => vec![at(server, own.join("claude_desktop_config.json"))],
            (Self::ClaudeDesktop, Some(_)) => return Err(SettingsError::NoProject(self.name())),
            (Self::Cursor, None) => vec![at(server, own.join("mcp.json"))],
            (Self::Cursor, Some(project)) => {
                vec![at(server, project.join(".cursor").join("mcp.json"))]
            }
            (Self::VsCode, None) => {
                vec![at(
                    SettingsPart::Server(servers::VS_CODE_FORMAT),
                    own.join("User").join("mcp.json"),
                )]
            }
            (Self::VsCode, Some(project)) => {
                vec![at(
                    SettingsPart::Server(servers::VS_CODE_FORMAT),
                    project.join(".vscode").join("mcp.json"),
                )]
            }
        })
    }

    /// What the user has to do next.
    pub fn next_step(self) -> &'static str {
        match self {
            Self::ClaudeCode => {
                "Start a new session of Claude Code; /hooks and /mcp show what was added."
            }
            Self::Codex => "Start Codex again; it asks once whether these hooks may run.",
            Self::ClaudeDesktop => "Quit Claude Desktop and start it again.",
            Self::Cursor => "Start Cursor again; its MCP settings show the server.",
            Self::VsCode => "VS Code shows the server in mcp.json; start it there once.",
        }
    }
}

impl ClientMachine {
    /// The folder of desktop applications' settings.
    fn app_settings_folder(&self) -> PathBuf {
        match self.system {
            OperatingSystem::Linux => {
                self.config.clone().unwrap_or_else(|| self.home.join(".config"))
            }
            OperatingSystem::Mac => self.home.join("Library").join("Application Support"),
            OperatingSystem::Windows => {
                self.config.clone().unwrap_or_else(|| self.home.join("AppData").join("Roaming"))
            }
        }
    }
}

impl SettingsPart {
    /// The kind of integration.
    pub fn kind(self) -> IntegrationKind {
        if matches!(self, Self::Hooks(_)) { IntegrationKind::Hooks } else { IntegrationKind::Mcp }
    }

    /// The settings with icecore connected.
    pub fn connect(self, text: &str, caller: &Invocation) -> Result<String, SettingsError> {
        match self {
            Self::Hooks(dialect) => hooks::connect(text, dialect, caller),
            Self::Server(shape) => servers::connect(text, shape, caller),
            Self::Toml => codex::connect(text, caller),
        }
    }

    /// The settings without icecore. `before` is the former text, if known.
    pub fn disconnect(self, text: &str, before: Option<&str>) -> Result<String, SettingsError> {
        match self {
            Self::Hooks(_) => hooks::disconnect(text, before),
            Self::Server(shape) => servers::disconnect(text, shape, before),
            Self::Toml => codex::disconnect(text),
        }
    }

    /// The vault that the settings name.
    pub fn bound_vault(self, text: &str) -> Option<String> {
        match self {
            Self::Hooks(_) => hooks::bound_vault(text),
            Self::Server(shape) => servers::bound_vault(text, shape),
            Self::Toml => codex::bound_vault(text),
        }
    }

    /// Whether settings are empty.
    pub fn is_blank(self, text: &str) -> bool {
        let text = text.trim_start_matches('\u{FEFF}').trim();
        let inside = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).map(str::trim);
        text.is_empty() || self != Self::Toml && inside == Some("")
    }
}
