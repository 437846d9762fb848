"""Deterministic test strings: some for every tokenizer, some built around a tokenizer's special tokens."""
import random, unicodedata

def common():
    S = ["", "\n", "\0", " ", "a", "\t", "\r", "\r\n", "\n\n", " \n", "\n ", "\t\t", "\u00a0", "\u3000", "\ufeff", "\u200b"]
    S += ["The quick brown fox jumps over the lazy dog.", "Hello world", " Hello world", "Hello world ", "  Hello  world  ", "Hello, y'all! How are you 😁 ?",
          "It was the best of times, it was the worst of times; it was the age of wisdom...", "Dr. Smith's e-mail: smith@example.com (tel. +1-555-0199).",
          "Visit https://example.com/path?query=1&other=two#frag now!", "“Quoted” — and ‘single’ – dashes… done", "A.B.C. a.b.c. U.S.A.", "snake_case camelCase PascalCase kebab-case SCREAMING_CASE",
          "100% of $5.00 is £4.00, €3.50 or ¥700 — №5 §3 ©2024 ®™", "!!!???...,,,;;;:::", "(){}[]<>/\\|`~@#$%^&*-_=+'\"", "''''''```````\"\"\"\"......!!!!!!??????", "a\\nb\\tc", "<html><body>&nbsp;</body></html>"]
    S += ["def f(x):\n    return x + 1\n", "def f(x):\n\tif x:\n\t\treturn [i for i in range(10)]\n\n\n", "int main() {\r\n\tprintf(\"hi\\n\");\r\n}\r\n",
          "for (int i = 0; i < n; ++i) {\n        a[i] += b[i] * c;  // comment\n}", "{\"a\": [1, 2.5, -3e10, null, true], \"b\": {\"c\": \"d\\u00e9\"}}", "SELECT * FROM t WHERE x >= 10 AND y <> 'z';",
          "\tindented\n\t\ttwice\n    spaces\n  \t mixed \t  \n", "#!/bin/sh\nset -euo pipefail\necho \"$@\" | sed 's/a/b/g' >/dev/null 2>&1\n", "x=1;y=2\n\n\n\n\nz=3", "import os, sys\nfrom a.b import (c as d)\n", "0x1F 0b1010 0o17 1_000_000 3.14159e-10 1e5 .5 5.",
          "template<typename T> struct S { T&& x; }; // C++20 <=> ->*", "fn main() -> Result<(), Box<dyn Error>> { Ok(()) }", "\\begin{equation} \\frac{a}{b} = \\sum_{i=0}^{n} x_i \\end{equation}", "- [ ] item\n- [x] done\n\n> quote\n\n```py\ncode\n```\n", "a\n b\n  c\n   d\n    e\n     f\n"]
    S += [" " * n for n in range(1, 21)]
    S += ["a" + " " * n + "b" for n in range(2, 21)]
    S += ["\n" * n for n in (3, 4, 5, 8, 16, 17)] + ["\t" * n for n in (3, 4, 8, 17)] + ["\r\n" * n for n in (2, 3, 5)] + [" \n \n", "\n \n \n", "  \n\n  ", "x \n", "x\n ", "x \t\n y", "a\rb\rc", "line1\r\nline2\r\n\r\nline3", "\u2028\u2029\u0085", "a\u00a0b\u2003c\u202fd"]
    S += ["I'm you're he's we've they'd I'll don't it's", "I'M YOU'RE HE'S WE'VE THEY'D I'LL DON'T IT'S", "'s 't 're 've 'm 'll 'd", "'S 'T 'RE 'VE 'M 'LL 'D", "I’m you’re it’s DON’T", "'Twas the night; rock 'n' roll", "a'b'c 'quoted' 'sx 'llx", "we'Re thEy'lL 'ſ"]
    S += ["1" * n for n in range(1, 13)] + [str(i) * 3 + "," for i in (12, 345)] + ["123456789012", "1,234,567.89", "3.14", "2024-01-02T03:04:05Z", "v1.2.3-rc4", "x1y22z333w4444", "1 22 333 4444 55555 666666", "١٢٣٤٥", "१२३४५", "１２３４５", "Ⅷ ½ ² ³ ①"]
    S += ["你好，世界！", "我喜欢吃苹果。今天天气很好。", "日本語のテキストです。カタカナとひらがな。", "안녕하세요 세계", "한국어 텍스트 처리 테스트", "中文English混合text测试123", "繁體中文測試", "「括弧」『二重』", "𠮷野家で𩸽を食べる", "龘靐齉爩", "　全角　スペース　"]
    S += ["สวัสดีชาวโลก", "ภาษาไทยไม่มีการเว้นวรรค", "مرحبا بالعالم", "اَلْعَرَبِيَّةُ", "שלום עולם", "שָׁלוֹם", "नमस्ते दुनिया", "हिन्दी में लिखा क्षत्रिय", "বাংলা ভাষা", "தமிழ் மொழி", "ಕನ್ನಡ ತೆಲುಗು తెలుగు", "မြန်မာဘာသာ", "ភាសាខ្មែរ", "Привет, мир! Ёлка", "Γειά σου Κόσμε ΣΑΣ", "Հայերեն ქართული አማርኛ", "Tiếng Việt có dấu", "Türkçe İıŞş", "Zażółć gęślą jaźń", "naïve café résumé Ångström", "ǅ ǈ ǋ ﬁ ﬂ ﬃ", "ẞ ß SS ſ"]
    S += ["😀", "😀😁😂🤣", "👨‍👩‍👧‍👦", "👩🏽‍💻 working", "🇫🇷🇩🇪🇯🇵", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "❤️ vs ❤", "☺︎ ☺️", "1️⃣2️⃣#️⃣", "🤦🏼‍♂️🤷🏿‍♀️", "Hi 👋🏻, ok 👌!", "🚀 (normal) 😶‍🌫️ (multiple emojis concatenated) ✅ 🦙🦙 3 33 333", "𝕳𝖊𝖑𝖑𝖔 𝓦𝓸𝓻𝓵𝓭", "𐍈𐎠𒀀𓀀", "\U0010ffff", "\U0001f1e6", "\u0301", "a\u0301\u0323", "\u0323\u0301a"]
    for w in ("é", "Å", "ñandú", "한글", "ệ", "ﬁ", "Ω", "क़", "が"):
        S += [unicodedata.normalize("NFC", w), unicodedata.normalize("NFD", w)]
    S += ["a\u200bb", "a\u200cb\u200dc", "\u200e\u200f\u202a\u202e\u2066\u2069", "soft\u00adhyphen", "\ufeffBOM", "word\u2060joiner", "\ufffd", "a\ufffdb\ufffd\ufffd", "\ue000\uf8ff", "\U000f0000", "\ufdd0\uffff", "\x01\x02\x1b[31mred\x1b[0m\x7f", "a\0b\0\0c", "Z̸̢̛a̷͇͝l̵̳͠g̶̨͝ö̴́", "▁", "▁▁a ▁b", "a▁b", "Ġ", "Ċ Ġa", "<0x41>", "<0x0A><0xE4>", "<unk>", "<pad>", "<s>", "</s>", "<|endoftext|>", "<s>a</s>b", " <s> a </s> ", "[INST] x [/INST]", "<|im_start|>user\nhi<|im_end|>\n", "<|im_start|", "<|begin_of_text|>x<|eot_id|>", "<start_of_turn>user\nhi<end_of_turn>\n", "<think>\nhm\n</think>\n\nok", "<tool_call>{}</tool_call>", "<bos><eos>", "<b>bold</b><h1>t</h1><td></td>", "<unused0>[multimodal]"]
    S += ["a" * 100, "ab" * 200, "x" * 2000, "Donaudampfschifffahrtsgesellschaftskapitän" * 8, "=" * 80, "-" * 33, "ха" * 60, "哈" * 65, "!" * 129, "\u0e01" * 70, "ACGT" * 100, "/" * 17 + "usr" + "/" * 9, "0" * 64, "0123456789abcdef" * 8, "👍" * 20]
    S += ["Once upon a time, in a village by the sea, there lived an old fisherman whose name nobody could remember.\n\nHe mended nets; he told stories, and — on Sundays — he slept.", "The   price\tis\n$1,299.99   (incl.  VAT)\r\n", "   leading and trailing   ", "\n\nleading newlines", "trailing newlines\n\n", "ÀÉÎÕÜ àéîõü ÆØÅ æøå", "e\u0301te\u0301 été", "mixed العربية and English עברית 123", "ａｂｃ ＡＢＣ", "H₂O x² E=mc² ∑∫√∞≠≤≥ ∀∃", "→←↑↓⇒ ■□▲ ★☆ ♠♥", "№ ™ ℃ ㎏ ㍿", "ﷺ", "ᚠᚢᚦ ᐃᓄᒃᑎᑐᑦ ꦗꦮ", " 1", " a b c", "a  b   c    d", "the\u2009thin", "can't've y'all'd've", "o'clock O'Neil d'être l’été", "#hashtag @user :) ;-) <3 xD", "\\ud83d \\x00 \\\\", "%s %d {} {{}} ${x} $(y)", "a,b;c:d|e/f\\g", "end."]
    return S

def words():
    """Words at the limits of WordPiece vocabularies, and characters that BERT's cleaning treats in ways of its own."""
    S = ["e" * n for n in (19, 20, 21, 99, 100, 101)] + ["é" * n for n in (20, 21, 100, 101)] + ["the" + "x" * 97, "(" + "e" * 100 + ")"]
    S += ["un##known", "##ing", "## a", "don't do not isn't", "I'm , you 've ! they 're . 's ' ' ?", "a'b", "$5+3=8<9>7|6~`^", "İstanbul IĞDIR ıI", "ΑΣ ΟΔΟΣ", "Käse KÄSE käse kase", "QUIRE Quire quire",
          "[MASK] x [MASK]", "x  [MASK] y[MASK]", "[cls] [Sep]", "a\u0300\u0301\u0327", "\u1100\u1161\u11a8", "क्षि ி ொ", "a\u00adb\u200bc\u2060d\ufeffe", "\x7f\x80\x85\x9fx", "𠀀𪜀𫝀𫠠𬺰豈丽", "々〆〇ヶ㐀", "🤦🦙🫠", "Ꭰꭰᏸ", "ẞΩKÅ", "\ue000\U000f0000x"]
    return S

def fuzz(n=100, seed=20261121):
    R = random.Random(seed); out = []
    blocks = [(0x20, 0x7e), (0x20, 0x7e), (0x0, 0x1f), (0x80, 0x24f), (0x300, 0x36f), (0x370, 0x52f), (0x590, 0x6ff), (0x900, 0xdff), (0xe00, 0xeff), (0x1100, 0x11ff), (0x2000, 0x206f), (0x2070, 0x2bff), (0x3000, 0x30ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0xe000, 0xf8ff), (0xf900, 0xffff), (0x10000, 0x1ffff), (0x1f300, 0x1faff), (0x20000, 0x2a6df), (0xe0000, 0xe01ef), (0x100000, 0x10ffff)]
    for i in range(n):
        s = ""; mix = R.sample(blocks, R.randint(1, 6))
        for _ in range(R.randint(1, 60)):
            if R.random() < 0.15: s += R.choice([" ", "  ", "\n", "\t", "'s", "1", "\r\n", "\u200d", "\ufe0f"]); continue
            a, b = R.choice(mix); c = R.randint(a, b)
            if 0xd800 <= c <= 0xdfff: c = 0xfffd
            s += chr(c)
        out.append(s)
    return out

def special(tokens, seed=7):
    """Strings around special-token texts (tokens: a few of them)."""
    out = []
    for t in tokens:
        out += [t, "a" + t + "b", " " + t + " ", t + t, t + "\n", "x " + t + "  y", t[:-1], t[1:]]
    if len(tokens) > 1: out += ["".join(tokens), " ".join(tokens), "\n".join(tokens)]
    return out
def pick(tokens, n=6):
    if len(tokens) <= n: return list(tokens)
    if n == 1: return [tokens[len(tokens) // 2]]
    step = (len(tokens) - 1) / (n - 1)
    return [tokens[round(i * step)] for i in range(n)]
def uniq(xs):
    seen = set(); return [x for x in xs if not (x in seen or seen.add(x))]
