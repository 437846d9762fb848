#include "text/convert/probe_texts.h"

namespace quire {
namespace {

constexpr std::string_view kOrdinary[] = {
    "Hello, world! How are you today?",
    "trailing spaces   ",
    "I've been told that he's there; we'll see, they're late, I'd go, I'm in. Don't!",
    "'s 't're 'quoted' \"double\" `code` ''nested''",
    "1 12 123 1234 12345 123456 1234567 3.14159 1,000,000 -42 v1.2.3 2026-11-22 10:30",
    "a1b2 abc123def 3rd x86_64 utf8 f16 2x",
    "two  spaces   three    four\tone tab\t\ttwo",
    "lines\nbreak\n\nparagraph\r\nwindows\r\n\r\n\n\n\nmany",
    "text:\n   \n  indented\n    more\n\tthen a tab\n",
    "trailing newline\n",
    "int main(int argc, char** argv) { return argc > 1 ? 0 : -1; }  // comment\n",
    "def f(x):\n    if x == 0:\n        return [1, 2, 3]\n    return {'a': x ** 2, \"b\": x // 3}\n",
    "<html><body class=\"x\">&nbsp;</body></html>\n",
    "SELECT * FROM t WHERE a <> 'b' AND c LIKE '%d%';",
    "https://example.com/a/b?c=d&e=f#g user@example.com /usr/local/bin C:\\Windows",
    "!!! ??? ... --- === +++ *** ### $$$ %%% ^^^ &&& ~~~ ||| ((())) [[]] {{}}",
    "wait...what?! (yes) [no] {maybe} <tag> #hash @at $5.00 50% a&b a*b a^b a|b ~a",
    "CamelCase camelCase snake_case SCREAMING_CASE kebab-case HTTPServer iPhone",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter.",
    "El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia y frío. ¿Añoraba? ¡Sí!",
    "Быстрая коричневая лиса прыгает через ленивую собаку.",
    "Η γρήγορη καφέ αλεπού πηδάει πάνω από το τεμπέλικο σκυλί.",
    "我能吞下玻璃而不伤身体。今天是2026年11月22日，天气很好！",
    "いろはにほへと ちりぬるを。カタカナもあります。",
    "emoji 😀 😃🚀 and ✅ marks",
    "a\nb\nc\n1\n2\n3\n",
    "",
    "\n",
    "x",
};

constexpr std::string_view kUnusual[] = {
    "나는 유리를 먹을 수 있어요. 그래도 아프지 않아요.",
    " a leading space",
    " ",
    "   \n  an indented start",
    "हिन्दी में लिखा हुआ एक वाक्य।",
    "ฉันกินกระจกได้ แต่มันไม่ทำให้ฉันเจ็บ",
    "أنا قادر على أكل الزجاج و هذا لا يؤلمني. ١٢٣",
    "កាន់តែពិសេសអាច",
    "ÄÖÜ ÉCOLE ЖУРНАЛ ΑΒΓ ǅ ŁÓDŹ İstanbul ẞ",
    "e\xCC\x81 decomposed, a\xCC\x88o\xCC\x88",
    "I'VE HE'S WE'LL DON'T You'Re",
    "no\u00A0break\u2003em\u3000ideographic\u200Bzero",
    "½ ² ③ Ⅷ ٣ ४ 万",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🌫️",
    "a/b//c///d ./e ../f \\g",
    "x\x0B\x0Cy \x1F",
    "~tilde ~~ a~b ^caret `grave` ´acute",
    "———–‐‑ „quotes“ «guillemets» …",
};

}  // namespace

std::span<const std::string_view> ordinary_texts() { return kOrdinary; }
std::span<const std::string_view> unusual_texts() { return kUnusual; }

}  // namespace quire
