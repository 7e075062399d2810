"""Makes crates/icecore-engine/tests/data/embeddings.json: what the reference implementation says of some texts.

Run it with the folder of the model in an environment that has `sentence-transformers`. It is not part of a test run: the
table is kept, so that a change of ours cannot change what is right.
"""

import hashlib
import json
import pathlib
import sys

import numpy
import torch
from sentence_transformers import SentenceTransformer

TEXTS = [
    ("", 1),
    (" \t\n ", 1),
    ("hello", 1),
    ("When did we decide to move the backups to the second disk?", 1),
    ("We moved the backups to the second disk on Tuesday, because the first one was full.", 1),
    ("The dentist's appointment is on 14 March at 9:30; Marta will drive.", 1),
    ("Oat milk, rye bread, two lemons and the small batteries.", 1),
    ("She said: \"don't ship before the tests are green\" -- and left.", 1),
    ("UPPER CASE, lower case and mIxEd CaSe are one to it.", 1),
    ("The café in Kraków has crème brûlée, jalapeños and smørrebrød.", 1),
    ("cafe\u0301 and café are spelled differently in bytes", 1),
    ("Größe, Straße, Übermut und ein ẞ am Ende", 1),
    ("İstanbul'da ılık bir gün, ĳsvogel ǅ ŉ", 1),
    ("Ελληνικά: ο Οδυσσεύς γύρισε στην Ιθάκη", 1),
    ("Вчера мы долго говорили о переезде в Ригу.", 1),
    ("اجتمعنا أمس لنتحدث عن الميزانية", 1),
    ("नमस्ते, कल मिलते हैं", 1),
    ("ขอบคุณมาก แล้วพบกันใหม่", 1),
    ("東京で会議があります。明日は休みです。", 1),
    ("我们昨天决定把备份移到第二块硬盘。", 1),
    ("안녕하세요, 내일 만나요", 1),
    ("mixed 漢字 and words,カタカナ,ｆｕｌｌｗｉｄｔｈ　ｓｐａｃｅ", 1),
    ("Good morning 🙂 the 🚀 launch is on! 👩‍👩‍👧 🇩🇪 ✅", 1),
    ("fn main() { let x: Vec<u8> = vec![0; 16]; println!(\"{x:?}\"); }", 1),
    ("SELECT id, name FROM users WHERE last_seen > now() - interval '7 days';", 1),
    ("https://example.org/a/b?c=d&e=%20f#g  mail@example.org  C:\\temp\\x.txt", 1),
    ("git commit -m 'fix: off-by-one' && ./deploy.sh --dry-run", 1),
    ("a\u0000b\u0001c\u007fd\u0085e\ufffdf\u200bg\u200dh\u00adi\ufeffj", 1),
    ("tab\tnew\nline\rreturn\u000bvertical\u000cform\u00a0no-break\u2003em\u3000wide", 1),
    ("[CLS] is not a word, nor are [SEP] and [MASK]; [cls] and [ SEP ] are. [UNK][PAD]x", 1),
    ("$100 + €20 = £90? ~5% of ½ m² – “quoted” … «so» ‹and› „so“ ¿qué? ¡sí! § 5 • · †", 1),
    ("x" * 100, 1),
    ("x" * 101, 1),
    ("pneumonoultramicroscopicsilicovolcanoconiosis antidisestablishmentarianism", 1),
    ("1234567890 3.14159 1,000,000 0xdeadbeef 2026-02-13T09:30:00+01:00", 1),
    ("\u0301\u0302 marks alone \u20dd e\u0301\u0323\u0302 order", 1),
    ("\U000e0041\ue000\U0010ffff private and \u0378 unassigned \U0001fae8", 1),
    ("ﬁne ﬂow ǆ ℌ ① ㍿ ﷺ ligatures and compatibility", 1),
    ("豈 更 \U0002f800 \U00020000 \U0002b820 rare ideographs", 1),
    ("A lighthouse keeper counts ships. ", 30),
    ("備份", 200),
    ("word-", 400),
]


def main():
    torch.set_num_threads(1)
    model = SentenceTransformer(sys.argv[1], device="cpu")
    rows = []
    for text, times in TEXTS:
        whole = text * times
        tokens = model.tokenize([whole])["input_ids"][0].tolist()
        vector = model.encode(whole, normalize_embeddings=True)
        packed = numpy.round(vector.astype(numpy.float64) * 32767).astype("<i2").tobytes().hex()
        rows.append({"text": text, "times": times, "tokens": tokens, "vector": packed})
    # Every character of the planes that have any, alone between two letters; only the hash of all their tokens is kept.
    tokenizer = model.tokenizer.backend_tokenizer
    tokenizer.no_truncation()
    tokenizer.no_padding()
    told = hashlib.sha256()
    for code in [*range(0xD800), *range(0xE000, 0x32400), *range(0xE0000, 0xE0200)]:
        ids = tokenizer.encode(f"a{chr(code)}b").ids
        told.update(f"{code:x} {ids}\n".encode())
    table = {"every_character": told.hexdigest(), "texts": rows}
    place = pathlib.Path(__file__).parents[2] / "crates/icecore-engine/tests/data/embeddings.json"
    lines = ",\n".join(json.dumps(row) for row in rows)
    place.write_text(f'{{"every_character": "{table["every_character"]}", "texts": [\n{lines}\n]}}\n')


main()
