// Scopes, loops, macros and white space. The expected texts come from jinja2 3.1.6 with trim_blocks and lstrip_blocks.
#include <gtest/gtest.h>

#include "unit/jinja/render.h"

namespace quire {
namespace {

TEST(JinjaScope, EndsWithEachIterationOfALoop) {
  EXPECT_EQ(rendered("{% set x = 1 %}{% for i in l %}{{ x }}{% set x = i %}{{ x }} {% endfor %}{{ x }}"), "13 11 12 1");
  EXPECT_EQ(rendered("{% for n in l %}{{ n }}{% endfor %}{{ n }}"), "3127");
}

TEST(JinjaScope, IsNotOpenedByAnIf) { EXPECT_EQ(rendered("{% if true %}{% set q = 5 %}{% endif %}{{ q }}"), "5"); }

TEST(JinjaScope, IsEscapedByANamespace) {
  EXPECT_EQ(rendered("{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}"),
            "7");
  EXPECT_EQ(error_of("{% set d.x = 1 %}"), "t:1: cannot assign attribute on non-namespace object 'd'");
}

TEST(JinjaScope, EndsWithASetBlockAWithAndAGeneration) {
  EXPECT_EQ(rendered("{% set y = 1 %}{% set x %}{% set y = 2 %}{{ y }}{% endset %}{{ x }}{{ y }}"), "21");
  EXPECT_EQ(rendered("{% with a=1, b=2 %}{{ a }}{{ b }}{% endwith %}{{ a }}"), "12");
  EXPECT_EQ(rendered("{% set y = 1 %}{% generation %}{% set y = 2 %}{{ y }}{% endgeneration %}{{ y }}"), "21");
}

TEST(JinjaScope, OfAMacroIsThatOfItsDefinition) {
  EXPECT_EQ(rendered("{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}"), "2");
  EXPECT_EQ(rendered("{% macro m() %}{{ i }}{{ loop }}{% endmacro %}{% for i in l %}{{ m() }}{% endfor %}"), "");
  EXPECT_EQ(rendered("{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}"), "312");
  EXPECT_EQ(rendered("{% macro m() %}{% set z = 1 %}{% endmacro %}{{ m() }}{{ z }}"), "");
}

TEST(JinjaMacro, AcceptsDefaultsAndKeywords) {
  const std::string m = "{% macro m(a, b=2, c=a) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}";
  EXPECT_EQ(rendered(m + "{{ m(1) }} {{ m(1, c=5) }} {{ m(b=1, a=3) }} {{ m() }}"), "1-2-1 1-2-5 3-1-3 -2-");
  EXPECT_EQ(rendered("{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, z=3) }}"),
            "1(2,){'z': 3}");
  EXPECT_EQ(rendered(m + "{{ m(*[1, 2], **{'c': 3}) }}"), "1-2-3");
  EXPECT_EQ(error_of(m + "{{ m(1, 2, 3, 4) }}"), "t:1: macro 'm' takes not more than 3 argument(s)");
  EXPECT_EQ(error_of(m + "{{ m(z=1) }}"), "t:1: macro 'm' takes no keyword argument 'z'");
}

TEST(JinjaMacro, CallsBackTheCallBlock) {
  EXPECT_EQ(
      rendered("{% macro m(x) %}{{ caller(x, 2) }}!{% endmacro %}{% call(a, b) m(5) %}{{ a }}{{ b }}{% endcall %}"),
      "52!");
  EXPECT_EQ(rendered("{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}"), "False");
}

TEST(JinjaMacro, CanCallItself) {
  EXPECT_EQ(rendered("{% macro f(n) %}{{ 1 if n <= 1 else n * (f(n - 1)|int) }}{% endmacro %}{{ f(10) }}"), "3628800");
}

TEST(JinjaLoop, ReportsItsPosition) {
  EXPECT_EQ(rendered("{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length "
                     "}}{{ loop.revindex }}"
                     "{{ loop.previtem }}{{ loop.nextitem }}|{% endfor %}"),
            "10TrueFalse331|21FalseFalse3232|32FalseTrue311|");
  EXPECT_EQ(rendered("{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% endfor %}"),
            "aTruebTrueaTrue");
}

TEST(JinjaLoop, FiltersUnpacksBreaksAndElses) {
  EXPECT_EQ(rendered("{% for x in l if x > 1 %}{{ loop.index }}/{{ x }}/{{ loop.last }} {% endfor %}"),
            "1/3/False 2/2/True ");
  EXPECT_EQ(rendered("{% for (a, b), c in [[[1, 2], 3]] %}{{ a }}{{ b }}{{ c }}{% endfor %}"), "123");
  EXPECT_EQ(rendered("{% for x in [1, 2, 3, 4] %}{% if x == 2 %}{% continue %}{% elif x == 4 %}{% break %}{% endif "
                     "%}{{ x }}{% endfor %}"),
            "13");
  EXPECT_EQ(rendered("{% for x in [] %}a{% else %}b{% endfor %}"), "b");
  EXPECT_EQ(rendered("{% for x in undefined_name %}a{% else %}b{% endfor %}"), "b");
  EXPECT_EQ(rendered("{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}"), "b=1;a=[1, None, True, \"x'y\"];");
  EXPECT_EQ(rendered("{% for x in [1, [2, [3]]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{{ "
                     "loop.depth }}{% endif %}{% endfor %}"),
            "11(22(33))");
}

TEST(JinjaLoop, EvaluatesItsConditionAsLateAsJinja2) {
  const std::string start = "{% set ns = namespace(done=false) %}{% for m in users if not ns.done %}{{ m.name }}";
  EXPECT_EQ(rendered(start + "{% set ns.done = true %}{% endfor %}"), "Bob");
  EXPECT_EQ(rendered(start + "{{ loop.last }}{% set ns.done = true %}{% endfor %}"), "BobFalsealTrue");
}

// llama.cpp's template of Kimi K2 keeps a queue of ids in a list.
TEST(JinjaLists, Change) {
  EXPECT_EQ(rendered("{% set ns = namespace(ids=[]) %}{% macro call(id) %}{% set _ = ns.ids.append(id) %}<{{ id }}>"
                     "{% endmacro %}{{ call('a') }}{{ call('b') }}{% if ns.ids %}{% set x = ns.ids.pop(0) %}{{ x }}"
                     "{% endif %}{{ ns.ids }}"),
            "<a><b>a['b']");
  EXPECT_EQ(rendered("{% set x = [1] %}{% set y = x %}{% set z = x.copy() %}{% set _ = x.append([2, 'c']) %}{{ y }}"
                     "{{ z }}{{ x.append(3) }}{{ y[-1] }}"),
            "[1, [2, 'c']][1]None3");
  EXPECT_EQ(
      rendered("{% set x = [3, 1] %}{{ [x.extend([7, 8]), x.insert(1, 'i'), x.insert(-1, 'j'), x.insert(99, 'k'), "
               "x.pop(), x.pop(0), x.pop(-2), x.remove(1), x.reverse()] }}{{ x }}{% set _ = x.clear() %}{{ x }}"),
      "[None, None, None, None, 'k', 3, 'j', None, None][8, 7, 'i'][]");
  EXPECT_EQ(rendered("{% set x = [1, 2] %}{% for i in x %}{% set _ = x.append(i) %}{% endfor %}{{ x }}"),
            "[1, 2, 1, 2]");
  EXPECT_EQ(
      rendered("{% set groups = [] %}{% for u in users %}{% if groups and u.age == 5 %}"
               "{% set _ = groups[-1].of.append(u) %}{% else %}{% set _ = groups.append({'of': [u]}) %}{% endif %}"
               "{% endfor %}{{ groups | map(attribute='of') | map('length') | join(',') }}"),
      "2,1");
}

TEST(JinjaBlock, CapturesAndFilters) {
  EXPECT_EQ(rendered("{% set x %}abc{{ n }}{% endset %}{{ x|upper }}"), "ABC7");
  EXPECT_EQ(rendered("{% set x | upper | replace('A', '_') %}abc{% endset %}{{ x }}"), "_BC");
  EXPECT_EQ(rendered("{% filter upper %}abc{{ n }}{% endfilter %}"), "ABC7");
}

TEST(JinjaWhiteSpace, IsTrimmedAroundBlocks) {
  EXPECT_EQ(rendered("   {% if true %}\n  a\n   {% endif %}\nb\n"), "  a\nb");
  EXPECT_EQ(rendered("  x {% if true %} a {% endif %} b"), "  x  a  b");
  EXPECT_EQ(rendered("a   {%- if true -%}   b   {%- endif -%}   c"), "abc");
  EXPECT_EQ(rendered("  {%+ if true +%}\nb{% endif %}"), "  \nb");
  EXPECT_EQ(rendered("  {{ n }}\n {{- n }}\n{{ n -}}\n  x\n"), "  77\n7x");
  EXPECT_EQ(rendered("  {# c #}\na\n   {# c #} b"), "a\n b");
  EXPECT_EQ(rendered("a {%- raw -%} {{ x }} {%- endraw -%} b"), "a{{ x }}b");
  EXPECT_EQ(rendered("a\r\nb\rc\n\n"), "a\nb\nc\n");
}

TEST(JinjaUnknownFilter, FailsAtRunTimeIfGuardedByAnIf) {
  EXPECT_EQ(rendered("{% if false %}{{ 5|nosuch }}{% endif %}ok"), "ok");
  EXPECT_EQ(error_of("{{ 5|nosuch }}"), "t:1: there is no filter named 'nosuch'");
}

}  // namespace
}  // namespace quire
