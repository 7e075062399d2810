import { test } from 'node:test';
import { sample, chat, visit, rail, to, settled, OUT } from './house.mjs';
test('try', async () => {
  const home = await sample(); const server = await home.serve(); await chat(home, server);
  const { page, wrongs, url } = await visit(server);
  await page.goto(url); await settled(page);
  console.log(await rail(page));
  for (const v of await rail(page)) { await to(page, v.address); await page.screenshot({path: `${OUT}/try-${v.id}.png`}); console.log(v.id, (await page.innerText('main')).slice(0,300)); }
  console.log(await home.cli('conversation','show','apple-crates'));
  console.log(wrongs.list);
});
