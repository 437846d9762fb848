// Methods of dicts, lists, tuples and floats.
#include <cmath>

#include "jinja/params.h"
#include "jinja/tables.h"

namespace quire::jinja {

Value forbidden_method(Evaluator&, const Value&, const Args&) { return {}; }

namespace {

Value get_method(Evaluator& e, const Value& self, const Args& args) {
  const Params p(args, "get", {"key", "default"}, 1);
  const Value* found = look_up(e.meter, *self.dict(), *p[0]);
  return found != nullptr ? *found : p[1] != nullptr ? *p[1] : Value(None{});
}

template <SequenceKind kKind>
Value view_method(Evaluator& e, const Value& self, const Args& args) {
  const Params p(args, "items", {});
  const auto& items = self.dict()->items;
  const Charge charge(e.meter, items.size() * sizeof(Value));
  Values out;
  out.reserve(items.size());
  for (const auto& [key, value] : items)
    out.push_back(kKind == SequenceKind::kItems  ? make_tuple(e.meter, {key, value})
                  : kKind == SequenceKind::kKeys ? key
                                                 : value);
  return make_sequence(e.meter, std::move(out), kKind);
}

Value same(Evaluator&, const Value& self, const Args& args) {
  const Params p(args, "copy", {});
  return self;  // values are immutable
}

Value index_method(Evaluator& e, const Value& self, const Args& args) {
  const Params p(args, "index", {"value"}, 1);
  const Values& items = self.sequence()->items;
  for (size_t i = 0; i < items.size(); ++i)
    if (equals(e.meter, items[i], *p[0])) return static_cast<Int>(i);
  throw invalid("the value is not in the list");
}

Value list_count_method(Evaluator& e, const Value& self, const Args& args) {
  const Params p(args, "count", {"value"}, 1);
  Int n = 0;
  for (const Value& item : self.sequence()->items) n += equals(e.meter, item, *p[0]) ? 1 : 0;
  return n;
}

}  // namespace

const MethodTable& dict_methods() {
  static const MethodTable kTable = {
      {"get", get_method},
      {"items", view_method<SequenceKind::kItems>},
      {"keys", view_method<SequenceKind::kKeys>},
      {"values", view_method<SequenceKind::kValues>},
      {"copy", same},
      {"clear", forbidden_method},
      {"pop", forbidden_method},
      {"popitem", forbidden_method},
      {"setdefault", forbidden_method},
      {"update", forbidden_method},
      {"fromkeys", forbidden_method},
  };
  return kTable;
}

const MethodTable& list_methods() {
  static const MethodTable kTable = {
      {"index", index_method},       {"count", list_count_method}, {"copy", same},
      {"append", forbidden_method},  {"clear", forbidden_method},  {"extend", forbidden_method},
      {"insert", forbidden_method},  {"pop", forbidden_method},    {"remove", forbidden_method},
      {"reverse", forbidden_method}, {"sort", forbidden_method},
  };
  return kTable;
}

const MethodTable& tuple_methods() {
  static const MethodTable kTable = {{"index", index_method}, {"count", list_count_method}};
  return kTable;
}

const MethodTable& float_methods() {
  static const MethodTable kTable = {{"is_integer", [](Evaluator&, const Value& self, const Args&) -> Value {
                                        return self.as<double>() == std::floor(self.as<double>());
                                      }}};
  return kTable;
}

}  // namespace quire::jinja
