// What each view of the rail has to show of the sample vault: words that are in it, not in the dashboard.

export const SHOWS = {
  first: ['Write to the museum in Weimar', 'Recall Pack', 'The stall at the market costs 45 EUR a day', '17 May 2026'],
  core: ['2026', '133 sessions'],
  ledger: ['The stall at the market costs 55 EUR a day', 'Switch the old shop off'],
  knowledge: ['Client X', 'Never deploy on Fridays'],
  conversations: ['apple-crates'],
  search: ['apple-crates'],
  packs: ['Recall Pack', 'Write to the museum in Weimar'],
  runs: ['consolidat'],
  health: ['Europe/Berlin'],
};
