// A bad or hostile template ends in an Error that names its line.
#include <gtest/gtest.h>

#include "unit/jinja/render.h"

namespace quire {
namespace {

std::string repeated(const std::string& s, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += s;
  return out;
}

TEST(JinjaSyntaxError, NamesTheLine) {
  for (const char* bad : {"{{ x",
                          "{{",
                          "{%",
                          "{% if",
                          "{# x",
                          "{% raw %}x",
                          "{{ 'abc }}",
                          "{{ \"abc",
                          "{{ }}",
                          "{{ 1 2 }}",
                          "{{ [1, 2 }}",
                          "{{ (1 }}",
                          "{{ 1) }}",
                          "{{ {1 }}",
                          "{{ {'a' 1} }}",
                          "{{ 1 + }}",
                          "{{ + }}",
                          "{{ a. }}",
                          "{{ a.'b' }}",
                          "{{ a[ }}",
                          "{{ a[1:2:3:4] }}",
                          "{{ |upper }}",
                          "{{ a| }}",
                          "{{ a|1 }}",
                          "{{ a|nosuch }}",
                          "{{ a is }}",
                          "{{ a is nosuch }}",
                          "{{ a is string is string }}",
                          "{{ a is not }}",
                          "{{ f(1, a=2, 3) }}",
                          "{{ f(a=1, a=2) }}",
                          "{{ f(**a, b) }}",
                          "{{ f(,) }}",
                          "{{ ! }}",
                          "{{ $a }}",
                          "{{ a ? b }}",
                          "{{ 'a\\x1' }}",
                          "{{ '\\ud800' }}",
                          "{{ '\\N{DASH}' }}",
                          "{{ 007 }}",
                          "{{ 0x }}",
                          "{{ 0b2 }}",
                          "{{ 999999999999999999999999999999999999999999 }}",
                          "{{ 1 if }}",
                          "{{ 1 if 2 else }}",
                          "{{ not }}",
                          "{{ a not b }}",
                          "{{ a = 1 }}",
                          "{% if true %}",
                          "{% if %}{% endif %}",
                          "{% if a %}{% else %}",
                          "{% elif a %}",
                          "{% else %}",
                          "{% endif %}",
                          "{% for x in l %}",
                          "{% for x l %}{% endfor %}",
                          "{% for in l %}{% endfor %}",
                          "{% for 1 in l %}{% endfor %}",
                          "{% for x in %}{% endfor %}",
                          "{% endfor %}",
                          "{% for x in l %}{% endif %}",
                          "{% set %}",
                          "{% set x %}",
                          "{% set x = %}",
                          "{% set 1 = 2 %}",
                          "{% set true = 1 %}",
                          "{% set x.y.z = 1 %}",
                          "{% set x + 1 %}",
                          "{% macro %}{% endmacro %}",
                          "{% macro m %}{% endmacro %}",
                          "{% macro m(a, a) %}{% endmacro %}",
                          "{% macro m(a=1, b) %}{% endmacro %}",
                          "{% macro m( %}{% endmacro %}",
                          "{% macro m() %}",
                          "{% call %}{% endcall %}",
                          "{% call m %}{% endcall %}",
                          "{% filter %}{% endfilter %}",
                          "{% with a %}{% endwith %}",
                          "{% foo %}",
                          "{% %}",
                          "{% 1 %}",
                          "{% break %}",
                          "{% continue %}",
                          "{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
                          "{% include 'a' %}",
                          "{% import 'a' as b %}",
                          "{% extends 'a' %}",
                          "{% block a %}{% endblock %}",
                          "{% generation %}",
                          "{% if a }}{% endif %}",
                          "{{ a %}"}) {
    const std::string message = error_of("line one\n" + std::string(bad));
    EXPECT_EQ(message.substr(0, 4), "t:2:") << bad << ": " << message;
    EXPECT_GT(message.size(), 10u) << bad;
  }
}

TEST(JinjaSyntaxError, SaysWhatIsMissing) {
  EXPECT_EQ(error_of("a\n{% if n %}\nb\n"), "t:3: 'endif' is missing for the block opened in line 3");
  EXPECT_EQ(error_of("{{ l"), "t:1: expected '}}', found the end of the template");
  EXPECT_EQ(error_of("\n\n{{ (1] }}"), "t:3: unexpected ']', expected ')'");
}

TEST(JinjaRuntimeError, NamesTheLine) {
  EXPECT_EQ(error_of("a\n{{ n }}\n{{ undefined_name.x }}"), "t:3: 'undefined_name' is undefined");
  EXPECT_EQ(error_of("{% macro m(x) %}\n{{ x.y.z }}{% endmacro %}\n\n{{ m({}) }}"),
            "t:2: 'dict object' has no attribute 'y'");
}

TEST(JinjaBounds, EndNesting) {
  for (const std::string& bad :
       {repeated("(", 100000), "{{ " + repeated("(", 100000) + "1" + repeated(")", 100000) + " }}",
        "{{ " + repeated("[", 5000) + " }}", "{{ " + repeated("not ", 50000) + "1 }}",
        "{{ " + repeated("-", 50000) + "1 }}", "{{ 1" + repeated("+1", 50000) + " }}",
        "{{ 1" + repeated("|abs", 50000) + " }}", "{{ d" + repeated(".a", 50000) + " }}",
        "{{ d" + repeated("[0]", 50000) + " }}", "{{ " + repeated("1 if 1 else ", 50000) + "1 }}",
        "{{ 1" + repeated(" if 1", 50000) + " }}", "{{ " + repeated("{1:", 50000) + " }}",
        repeated("{% if n %}", 20000) + repeated("{% endif %}", 20000), repeated("{% for x in l %}", 5000),
        repeated("{% macro m() %}", 5000), "{% for " + repeated("(", 50000) + " in l %}",
        "{{ d" + repeated("()", 50000) + " }}", "{{ 2" + repeated("**1", 50000) + " }}"}) {
    const std::string message = error_of(bad);
    if (bad[0] != '(') {
      EXPECT_EQ(message.substr(0, 4), "t:1:") << bad.substr(0, 40) << ": " << message.substr(0, 200);
    }
  }
}

TEST(JinjaBounds, EndRecursion) {
  EXPECT_NE(error_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}").find("nested more than"), std::string::npos);
  EXPECT_NE(error_of("{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{% call a() %}{% endcall %}{{ caller }}{% "
                     "endmacro %}{{ b() }}")
                .find("t:1:"),
            std::string::npos);
  EXPECT_NE(error_of("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}").find("nested more than"),
            std::string::npos);
  EXPECT_NE(error_of("{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}")
                .find("nested more than"),
            std::string::npos);
  EXPECT_NE(error_of("{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns }}").find("contains itself"),
            std::string::npos);
  EXPECT_NE(error_of("{% set ns = namespace(x=d) %}{% for i in range(9999) %}{% set ns.x = ns.x.get %}{% set ns.x = "
                     "{'a': ns.x} %}{% endfor %}")
                .find("nested"),
            std::string::npos);
}

TEST(JinjaBounds, EndLoops) {
  EXPECT_NE(error_of("{% for i in range(1000000000) %}x{% endfor %}").find("Range too big"), std::string::npos);
  EXPECT_NE(
      error_of("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}").find("too many steps"),
      std::string::npos);
  EXPECT_NE(error_of("{% for i in range(99999) %}{{ s|upper|lower|replace('l', 'll')|tojson|length }}{% for j in "
                     "range(99) %}{{ j in range(9999) }}{% endfor %}{% endfor %}")
                .find("too many steps"),
            std::string::npos);
}

// Without metering each of these runs for minutes.
TEST(JinjaBounds, EndLoopsOfSlowExpressions) {
  const std::string texts = "{% set a = 'a' * 1000000 %}{% set b = 'a' * 500000 ~ 'b' %}{% set d = {a: 1} %}";
  for (const char* slow : {"a.find(b)", "a.rfind('b' ~ b)", "b in a", "a.replace(b, '')", "a.split(b)", "d[a]",
                           "a.strip('b' * 500000 ~ 'a')", "a is lower", "a | int", "1e300 | round(300)"}) {
    const std::string error =
        error_of(texts + "{% for i in range(99999) %}{% for j in range(999) %}{% set x = " + slow +
                 " %}{% endfor %}{% endfor %}");
    EXPECT_NE(error.find("too many steps"), std::string::npos) << slow << ": " << error;
  }
  std::string names, sets;
  for (int i = 0; i < 20000; ++i) {
    names += fmt::format(", a{}", i);
    sets += fmt::format("{{% set a{} = 1 %}}", i);
  }
  const std::string loop = "{% for i in range(99999) %}{% for j in range(999) %}{{ ";
  for (const std::string& slow : {sets + loop + "a0", "{% macro m(a" + names + ") %}{% endmacro %}" + loop + "m()"}) {
    EXPECT_NE(error_of(slow + " }}{% endfor %}{% endfor %}").find("too many steps"), std::string::npos);
  }
}

// Searches from both ends of long texts.
TEST(JinjaBounds, LongTextsAreFoundAtTheRightPlace) {
  const std::string s = "{% set n = 'ab' * 50 %}{% set a = n ~ '-' ~ n ~ '+' %}";
  EXPECT_EQ(rendered(s + "{{ a.find(n) }} {{ a.rfind(n) }} {{ a.rfind(n ~ '-') }} {{ a.rfind(n ~ n) }}"), "0 101 0 -1");
  EXPECT_EQ(rendered(s + "{{ a.rsplit(n) }} {{ a.split(n) }} {{ a.rpartition(n)[0]|length }} {{ a.count(n) }}"),
            "['', '-', '+'] ['', '-', '+'] 101 2");
  EXPECT_EQ(rendered("{{ 'éaéb' | trim('é' ~ 'x' * 99) }}{{ '  éx '.strip(' é' * 30) }}"), "aébx");
}

TEST(JinjaBounds, EndGrowth) {
  const auto grown = [](const std::string& start, const std::string& step) {
    return error_of("{% set ns = namespace(x=" + start + ") %}{% for i in range(99) %}{% set ns.x = " + step +
                    " %}{% endfor %}{{ ns.x }}");
  };
  for (const auto& [start, step] : {std::pair<std::string, std::string>{"'ab'", "ns.x + ns.x"},
                                    {"'ab'", "ns.x ~ ns.x"},
                                    {"'ab'", "ns.x * 1000"},
                                    {"[1]", "ns.x + ns.x"},
                                    {"[1]", "ns.x * 1000"},
                                    {"[1]", "[ns.x, ns.x]"},
                                    {"'a'", "ns.x.replace('a', 'aaaa')"},
                                    {"'a'", "ns.x|replace('a', 'aaaa')"},
                                    {"'a'", "'%s%s' % (ns.x, ns.x)"},
                                    {"'a'", "'{0}{0}'.format(ns.x)"},
                                    {"'a'", "[ns.x, ns.x]|join"},
                                    {"{}", "{'a': ns.x, 'b': ns.x}"},
                                    {"'a\\n'", "(ns.x * 2)|indent(99)"},
                                    {"'\\\"'", "ns.x|tojson"},
                                    {"2", "ns.x ** ns.x"},
                                    {"'a'", "ns.x.join([ns.x, ns.x, ns.x])"}}) {
    EXPECT_EQ(grown(start, step).substr(0, 4), "t:1:") << step;
  }
  EXPECT_NE(error_of("{{ 'a'.center(999999999) }}").find("million"), std::string::npos);
  EXPECT_NE(error_of("{{ '%999999999d' % 5 }}").find("width"), std::string::npos);
  EXPECT_NE(error_of("{{ '{:999999999}'.format(5) }}").find("width"), std::string::npos);
  EXPECT_NE(
      error_of(
          "{% macro m(n) %}{{ 'x' * 60000 }}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(40) }}")
          .find("the template"),
      std::string::npos);
  EXPECT_EQ(error_of("{% set x = 'ab' * 1000 %}{% for a in x %}{% for b in x %}{% for c in x %}{{ x }}{% endfor %}{% "
                     "endfor %}{% endfor %}")
                .substr(0, 4),
            "t:1:");
}

TEST(JinjaBounds, KeepListsFromContainingThemselves) {
  for (const char* bad :
       {"{% set x = [] %}{{ x.append(x) }}", "{% set x = [] %}{% set y = [x] %}{{ x.append(y) }}",
        "{% set x = [] %}{% set y = [] %}{{ x.append(y) }}{{ y.append(x) }}",
        "{% set x = [] %}{% set y = {'a': x} %}{{ x.insert(0, y) }}", "{% set x = [] %}{{ x.append(x.append) }}",
        "{% set x = [] %}{% set y = [x.append] %}", "{% set x = [] %}{% set y = [x.index] %}{{ x.append(y) }}",
        "{% set x = [] %}{{ x.extend([[x]]) }}"})
    EXPECT_EQ(error_of(bad).substr(0, 4), "t:1:") << bad;
  // A chain of lists, each put into the one before it.
  EXPECT_EQ(
      error_of("{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set y = [] %}{% set _ = ns.x.append(y) %}"
               "{% set ns.x = y %}{% endfor %}")
          .substr(0, 4),
      "t:1:");
  EXPECT_EQ(
      error_of("{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set y = [] %}{% set _ = y.append(ns.x) %}"
               "{% set ns.x = y %}{% endfor %}")
          .substr(0, 4),
      "t:1:");
  EXPECT_EQ(error_of("{% set x = ['a' * 1000] %}{% for i in range(1000) %}{% for j in range(1000) %}"
                     "{% set _ = x.extend(x) %}{% endfor %}{% endfor %}")
                .substr(0, 4),
            "t:1:");
}

TEST(JinjaBounds, EndHugeSources) {
  EXPECT_NE(error_of(std::string(2 << 20, 'x')).find("at most"), std::string::npos);
  EXPECT_NE(error_of("\xff\xfe").find("not UTF-8"), std::string::npos);
}

}  // namespace
}  // namespace quire
