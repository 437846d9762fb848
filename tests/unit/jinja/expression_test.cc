// The expected texts come from jinja2 3.1.6 in the sandbox that transformers uses.
#include <gtest/gtest.h>

#include "unit/jinja/render.h"

namespace quire {
namespace {

struct Pair {
  const char* expression;
  const char* text;
};

void expect_all(std::initializer_list<Pair> pairs) {
  for (const auto& [expression, text] : pairs) {
    try {
      EXPECT_EQ(rendered("{{ " + std::string(expression) + " }}"), text) << expression;
    } catch (const Error& e) {
      ADD_FAILURE() << expression << ": " << e.what();
    }
  }
}

TEST(JinjaExpression, OperatorsBindAsInPython) {
  expect_all({{"1 + 2 * 3 ** 2", "19"},
              {"-2 ** 2", "4"},
              {"2 ** 3 ** 2", "64"},
              {"2 * 3 ~ 4", "64"},
              {"'a' ~ 'b' == 'ab'", "True"},
              {"not 'a' in 'b'", "True"},
              {"not true == false", "True"},
              {"1 < 2 < 3", "True"},
              {"3 > 2 > 2", "False"},
              {"true and false or true", "True"},
              {"1 and 2", "2"},
              {"0 or 'x'", "x"},
              {"'a' + 'b'|upper", "aB"},
              {"-3|abs", "3"},
              {"l|length > 2", "True"},
              {"1 if false else 2 if false else 3", "3"},
              {"9 not in l", "True"},
              {"'z' not in 'abc'", "True"},
              {"n is not none and n is not string", "True"}});
}

TEST(JinjaExpression, ComputesNumbersAsPythonDoes) {
  expect_all({{"7 // 2", "3"},
              {"-7 // 2", "-4"},
              {"7 % -3", "-2"},
              {"-7 % 3", "2"},
              {"-7.5 // 2", "-4.0"},
              {"10 / 2", "5.0"},
              {"2 ** -1", "0.5"},
              {"true + 1", "2"},
              {"1 == 1.0", "True"},
              {"0x1F + 0b101 + 0o17 + 1_000", "1051"},
              {"18446744073709551615 * 2", "36893488147419103230"},
              {"2.5|round", "2.0"},
              {"25|round(-1)", "20"},
              {"'3.7'|int", "3"},
              {"'x'|int(5)", "5"}});
}

TEST(JinjaExpression, PrintsValuesAsPythonDoes) {
  expect_all({{"1e16", "1e+16"},
              {"1e15", "1000000000000000.0"},
              {"0.00001", "1e-05"},
              {"0.0001", "0.0001"},
              {"none", "None"},
              {"true", "True"},
              {"d", "{'b': 1, 'a': [1, None, True, \"x'y\"]}"},
              {"(1,)", "(1,)"},
              {"undefined_name", ""},
              {"[\"a'b\", 'a\"b', '\\n\\\\', 'é']", "[\"a'b\", 'a\"b', '\\n\\\\', 'é']"},
              {"d.items()", "dict_items([('b', 1), ('a', [1, None, True, \"x'y\"])])"},
              {"range(3)", "range(0, 3)"},
              {"[undefined_name]", "[Undefined]"},
              {"['\\x00\\u200b']", "['\\x00\\u200b']"}});
}

TEST(JinjaExpression, CountsUnicodeCharacters) {
  expect_all({{"s|length", "14"},
              {"s[-1]", "👋"},
              {"s[7:12]", "Wörld"},
              {"s[::-1]", "👋 dlröW ,olleH"},
              {"s[:-2]", "Hello, Wörld"},
              {"s.find('👋')", "13"},
              {"s|upper", "HELLO, WÖRLD 👋"},
              {"'é'.center(3, '*')", "*é*"}});
}

TEST(JinjaExpression, SlicesAndIndexesFromBothEnds) {
  expect_all({{"l[-1]", "2"},
              {"l[1:]", "[1, 2]"},
              {"l[:-1]", "[3, 1]"},
              {"l[::-1]", "[2, 1, 3]"},
              {"l[::2]", "[3, 2]"},
              {"l[5:1]", "[]"},
              {"l[9]", ""},
              {"l[-99:99]", "[3, 1, 2]"},
              {"users.0.name", "Bob"},
              {"d['a'][-1]", "x'y"},
              {"(1, 2, 3)[1:]", "(2, 3)"},
              {"'abc'[10:]", ""}});
}

TEST(JinjaExpression, ReadsStringEscapes) {
  expect_all({{R"('\x41\u0042\103\n\z\/')", "ABC\n\\z\\/"},
              {R"('it\'s' ~ "q\"q")", "it'sq\"q"},
              {"'a' \"b\"", "ab"},
              {R"('\U0001F44B\t\\')", "👋\t\\"},
              {"'%}' ~ '}}'", "%}}}"}});
}

TEST(JinjaExpression, LooksUpKeysAndMethods) {
  expect_all({{"d.get('zz')", "None"},
              {"d.get('zz', 5)", "5"},
              {"d.zz is defined", "False"},
              {"{'items': 5}['items']", "5"},
              {"d['get']('b')", "1"},
              {"s['upper']()[:5]", "HELLO"},
              {"{1: 2}[1]", "2"},
              {"{1: 2}[true]", "2"},
              {"none_value.x", ""},
              {"namespace(a=1)['a']", "1"},
              {"d.pop is defined", "False"},
              {"'x'.__class__", ""}});
}

TEST(JinjaExpression, HasPythonsStringMethods) {
  expect_all({{"'  a  b c '.split()", "['a', 'b', 'c']"},
              {"'  a  b c '.split(none, 1)", "['a', 'b c ']"},
              {"'a,b,c'.rsplit(',', 1)", "['a,b', 'c']"},
              {"'a,b'.partition(',')", "('a', ',', 'b')"},
              {"'xxaxx'.strip('x')", "a"},
              {"'abc'.startswith(('x', 'a'))", "True"},
              {"'abcabc'.replace('b', 'X', 1)", "aXcabc"},
              {"'abc'.replace('', '-')", "-a-b-c-"},
              {"'a\\nb\\r\\nc'.splitlines()", "['a', 'b', 'c']"},
              {"'-42'.zfill(5)", "-0042"},
              {"'ab'.join(['x', 'y'])", "xaby"},
              {"\"it's\".title()", "It'S"},
              {"'ß'.upper()", "SS"}});
}

TEST(JinjaExpression, FormatsTexts) {
  expect_all({{"'%s %5.2f %r %x%%' % ('a', 3.14159, 'q', 255)", "a  3.14 'q' ff%"},
              {"'%(a)s' % {'a': 1}", "1"},
              {"'{0} {x} {0}'.format(1, x=[2])", "1 [2] 1"},
              {"'{:05d} {:,} {:.2f} {:%}'.format(42, 1234567, 3.14159, 0.5)", "00042 1,234,567 3.14 50.000000%"},
              {"'{:>3}|{:<3}|{:^3}'.format('a', 'b', 'c')", "  a|b  | c "},
              {"'%-4d|%04d|%i|%s' % (-7, -7, 7.9, true)", "-7  |-007|7|True"},
              {"'{:06.2f} {:x} {:s}'.format(-1.5, 255, 'a')", "-01.50 ff a"}});
}

TEST(JinjaExpression, RefusesRareFormats) {
  for (const char* rare : {"'%e' % 1.5", "'%+d' % 1", "'%#x' % 1", "'{:*^3}'.format('a')", "'{:+}'.format(1)",
                           "'{:e}'.format(1.5)", "'{0[a]}'.format({'a': 1})", "'{a.b}'.format(1)", "'{!r}'.format(1)",
                           "'{:.3}'.format(1.5)", "'{:{}}'.format(1, 2)"}) {
    EXPECT_NE(error_of("{{ " + std::string(rare) + " }}").find("is not supported"), std::string::npos)
        << rare << ": " << error_of("{{ " + std::string(rare) + " }}");
  }
}

TEST(JinjaExpression, WritesJsonAsJsonDumpsDoes) {
  expect_all({{"d|tojson", R"({"b": 1, "a": [1, null, true, "x'y"]})"},
              {"d|tojson(sort_keys=true, separators=(',', ':'))", R"({"a":[1,null,true,"x'y"],"b":1})"},
              {"{'a': [], 'b': [1]}|tojson(indent=2)", "{\n  \"a\": [],\n  \"b\": [\n    1\n  ]\n}"},
              {"'é<>👋'|tojson", "\"é<>👋\""},
              {"'é👋'|tojson(ensure_ascii=true)", "\"\\u00e9\\ud83d\\udc4b\""},
              {"{1: 2, none: 1.0}|tojson", R"({"1": 2, "null": 1.0})"}});
}

TEST(JinjaExpression, ChainsFilters) {
  expect_all({{"users|sort(attribute='name')|map(attribute='name')|join(', ')", "al, Bob, Cy"},
              {"users|selectattr('age', 'gt', 3)|list|length", "2"},
              {"users|rejectattr('name', 'equalto', 'Bob')|map(attribute='age')|sum", "9"},
              {"[' a ']|map('trim')|first", "a"},
              {"[0, 1, 2]|select|list", "[1, 2]"},
              {"['a', 'b']|reject('in', ['a'])|list", "['b']"},
              {"{'B': 1, 'a': 2}|dictsort", "[('a', 2), ('B', 1)]"},
              {"[1, 1, 2]|unique|list", "[1, 2]"},
              {"'a\\nb\\n\\nc'|indent(2, first=true)", "  a\n  b\n\n  c"},
              {"''|default('x', true)", "x"},
              {"[1, 2, 3]|batch(2)|list", "[[1, 2], [3]]"},
              {"undefined_name|list", "[]"}});
}

TEST(JinjaExpression, EscapesTextAddedToASafeText) {
  expect_all({{"'<b>'|safe + '<i>'", "<b>&lt;i&gt;"},
              {"'\"' + '<b>'|safe", "&#34;<b>"},
              {"'a'|safe ~ '<'", "a<"},
              {"[1]|tojson|safe", "[1]"}});
}

TEST(JinjaExpression, ReadsGeneratorsOnce) {
  EXPECT_EQ(rendered("{% set g = l|map('string') %}{{ g|first }}{{ g|list }}{{ g|list }}"), "3['1', '2'][]");
  EXPECT_EQ(rendered("{% if l|select('gt', 99) %}a generator is true{% endif %}"), "a generator is true");
}

TEST(JinjaExpression, FailsWherePythonFails) {
  for (const char* e : {"'a' + 1",
                        "1 + 'a'",
                        "[1] + 'a'",
                        "none < 1",
                        "1 // 0",
                        "1.0 / 0",
                        "1 in 'abc'",
                        "'b' in none_value",
                        "5()",
                        "undefined_name()",
                        "undefined_name.x",
                        "none_value.x.y",
                        "none_value[1:]",
                        "l|map('upper')|tojson",
                        "undefined_name|tojson",
                        "[].pop()",
                        "[1].pop(1)",
                        "[1].remove(2)",
                        "l.sort()",
                        "d.pop('b')",
                        "d.update({})",
                        "{[1]: 2}",
                        "'%s %s' % ('a',)",
                        "'{'.format()",
                        "range(200000)",
                        "5|length",
                        "l|items|list",
                        "5|nosuchfilter if true",
                        "1 if l is nosuchtest",
                        "2 ** 200",
                        "'a'.index('z')",
                        "l[::0]"})
    EXPECT_EQ(error_of("{{ " + std::string(e) + " }}").substr(0, 4), "t:1:") << e;
}

}  // namespace
}  // namespace quire
