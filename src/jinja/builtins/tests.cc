// The tests of `is`.
#include <unordered_map>

#include "jinja/builtins/params.h"
#include "jinja/eval.h"
#include "jinja/value/unicode.h"

namespace quire::jinja {
namespace {

const Value& other(const Args& args, std::string_view name) { return *Params(args, name, {"other"}, 1)[0]; }
void nothing(const Args& args, std::string_view name) { Params(args, name, {}); }

bool remainder_is(Evaluator& e, const Value& v, Int divisor, Int rest) {
  return equals(e.meter, arithmetic(e, Op::kModulo, v, divisor), rest);
}

bool is_cased(Evaluator& e, const Value& v, bool (*wanted)(char32_t), bool (*unwanted)(char32_t)) {
  if (v.text() == nullptr) return false;
  e.meter.step(v.text()->bytes.size() / 8);
  bool any = false;
  for (size_t at = 0; at < v.text()->bytes.size();) {
    const char32_t c = utf8_decode(v.text()->bytes, at);
    if (unwanted(c)) return false;
    any |= wanted(c);
  }
  return any;
}

bool is_sequence(const Value& v) {  // has a length and an index
  return v.text() != nullptr || v.dict() != nullptr || v.is_undefined() ||
         (v.sequence() != nullptr && v.sequence()->kind <= SequenceKind::kRange);
}

bool is_iterable(const Value& v) {
  return is_sequence(v) || v.sequence() != nullptr || v.is<Ref<Generator>>() || v.is<Ref<LoopState>>();
}

bool is_same(const Value& a, const Value& b) {
  if (a.is<Int>() && b.is<Int>()) return a.to_int() == b.to_int();
  if (a.is<double>() || b.is<double>()) return false;
  if (a.text() != nullptr && b.text() != nullptr) return a.text()->bytes == b.text()->bytes;
  return a.variant() == b.variant();
}

using Table = std::unordered_map<std::string_view, Test>;

const Table& tests() {
  static const Table kTests = [] {
    Table t;
    t["defined"] = [](Evaluator&, const Value& v, const Args& a) { return nothing(a, "defined"), !v.is_undefined(); };
    t["undefined"] = [](Evaluator&, const Value& v, const Args& a) {
      return nothing(a, "undefined"), v.is_undefined();
    };
    t["none"] = [](Evaluator&, const Value& v, const Args& a) { return nothing(a, "none"), v.is_none(); };
    t["true"] = [](Evaluator&, const Value& v, const Args& a) {
      return nothing(a, "true"), v.is<bool>() && v.as<bool>();
    };
    t["false"] = [](Evaluator&, const Value& v, const Args& a) {
      return nothing(a, "false"), v.is<bool>() && !v.as<bool>();
    };
    t["boolean"] = [](Evaluator&, const Value& v, const Args& a) { return nothing(a, "boolean"), v.is<bool>(); };
    t["integer"] = [](Evaluator&, const Value& v, const Args& a) { return nothing(a, "integer"), v.is<Int>(); };
    t["float"] = [](Evaluator&, const Value& v, const Args& a) { return nothing(a, "float"), v.is<double>(); };
    t["number"] = [](Evaluator&, const Value& v, const Args& a) { return nothing(a, "number"), v.is_number(); };
    t["string"] = [](Evaluator&, const Value& v, const Args& a) { return nothing(a, "string"), v.text() != nullptr; };
    t["mapping"] = [](Evaluator&, const Value& v, const Args& a) { return nothing(a, "mapping"), v.dict() != nullptr; };
    t["sequence"] = [](Evaluator&, const Value& v, const Args& a) { return nothing(a, "sequence"), is_sequence(v); };
    t["iterable"] = [](Evaluator&, const Value& v, const Args& a) { return nothing(a, "iterable"), is_iterable(v); };
    t["callable"] = [](Evaluator&, const Value& v, const Args& a) {
      return nothing(a, "callable"), v.is<Ref<const Callable>>() || v.is_undefined();
    };
    t["escaped"] = [](Evaluator&, const Value& v, const Args&) { return v.text() != nullptr && v.text()->markup; };
    t["lower"] = [](Evaluator& e, const Value& v, const Args&) { return is_cased(e, v, is_lower, is_upper); };
    t["upper"] = [](Evaluator& e, const Value& v, const Args&) { return is_cased(e, v, is_upper, is_lower); };
    t["odd"] = [](Evaluator& e, const Value& v, const Args&) { return remainder_is(e, v, 2, 1); };
    t["even"] = [](Evaluator& e, const Value& v, const Args&) { return remainder_is(e, v, 2, 0); };
    t["divisibleby"] = [](Evaluator& e, const Value& v, const Args& a) {
      return remainder_is(e, v, Params(a, "divisibleby", {"num"}, 1).integer(0, 1), 0);
    };
    t["filter"] = [](Evaluator&, const Value& v, const Args&) {
      return v.text() != nullptr && find_filter(v.text()->bytes) != nullptr;
    };
    t["test"] = [](Evaluator&, const Value& v, const Args&) {
      return v.text() != nullptr && find_test(v.text()->bytes) != nullptr;
    };
    t["sameas"] = [](Evaluator&, const Value& v, const Args& a) { return is_same(v, other(a, "sameas")); };
    t["in"] = [](Evaluator& e, const Value& v, const Args& a) {
      return contains(e.meter, v, *Params(a, "in", {"seq"}, 1)[0]);
    };
    t["equalto"] = t["eq"] =
        t["=="] = [](Evaluator& e, const Value& v, const Args& a) { return equals(e.meter, v, other(a, "eq")); };
    t["ne"] = t["!="] = [](Evaluator& e, const Value& v, const Args& a) { return !equals(e.meter, v, other(a, "ne")); };
    t["lessthan"] = t["lt"] =
        t["<"] = [](Evaluator& e, const Value& v, const Args& a) { return less(e.meter, v, other(a, "lt"), "<"); };
    t["greaterthan"] = t["gt"] =
        t[">"] = [](Evaluator& e, const Value& v, const Args& a) { return less(e.meter, other(a, "gt"), v, ">"); };
    t["le"] = t["<="] = [](Evaluator& e, const Value& v, const Args& a) {
      return less(e.meter, v, other(a, "le"), "<=") || equals(e.meter, v, other(a, "le"));
    };
    t["ge"] = t[">="] = [](Evaluator& e, const Value& v, const Args& a) {
      return less(e.meter, other(a, "ge"), v, ">=") || equals(e.meter, v, other(a, "ge"));
    };
    return t;
  }();
  return kTests;
}

}  // namespace

Test find_test(std::string_view name) {
  const auto it = tests().find(name);
  return it == tests().end() ? nullptr : it->second;
}

}  // namespace quire::jinja
