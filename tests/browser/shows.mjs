// The texts of the sample vault that each view of the rail has to show.

export const SHOWS = {
  first: ['Write to the museum in Weimar', 'Recall Pack', 'The stall at the market costs 45 EUR a day', '17 May 2026'],
  core: ['April 2026', '188 messages', '26 carts lost in 41 minutes by a one-line hotfix'],
  ledger: ['The stall at the market costs 55 EUR a day', 'Switch the old shop off', '#money'],
  knowledge: ['Client x', 'Principle: Never deploy on Fridays', '10 pages'],
  conversations: ['apple-crates'],
  search: ['client-x', 'apple-crates'],
  packs: ['Recall Pack — 2026-05-17', 'Write to the museum in Weimar'],
  runs: [/[1-9]\d* summaries written/],
  health: ['Intact when last verified, 17 May 2026', '1 conflict between statements'],
};
