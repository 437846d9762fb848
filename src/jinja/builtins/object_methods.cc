// Methods of dicts, lists, tuples and floats.
#include <algorithm>
#include <cmath>

#include "jinja/builtins/params.h"
#include "jinja/builtins/tables.h"

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
  return self;  // mappings are immutable
}

Value list_copy_method(Evaluator& e, const Value& self, const Args& args) {
  const Params p(args, "copy", {});
  return make_sequence(e.meter, self.sequence()->items);
}

// The methods that change a list are those that templates use outside of transformers' sandbox.
Values& items_of(const Value& list) { return const_cast<Sequence&>(*list.sequence()).items; }

Value append_method(Evaluator& e, const Value& self, const Args& args) {
  const Params p(args, "append", {"object"}, 1);
  insert_item(e.meter, self, items_of(self).size(), *p[0]);
  return None{};
}

Value extend_method(Evaluator& e, const Value& self, const Args& args) {
  const Params p(args, "extend", {"iterable"}, 1);
  for (const Value& item : iterate(e.meter, *p[0])) insert_item(e.meter, self, items_of(self).size(), item);
  return None{};
}

// Where Python's list.insert and list.pop count from: negative numbers from the end.
Int from_end(const Values& items, Int index) { return index < 0 ? index + static_cast<Int>(items.size()) : index; }

Value insert_method(Evaluator& e, const Value& self, const Args& args) {
  const Params p(args, "insert", {"index", "object"}, 2);
  const auto size = static_cast<Int>(items_of(self).size());
  const Int at = std::clamp(from_end(items_of(self), p.integer(0, 0)), Int{0}, size);
  insert_item(e.meter, self, static_cast<size_t>(at), *p[1]);
  return None{};
}

Value pop_method(Evaluator& e, const Value& self, const Args& args) {
  const Params p(args, "pop", {"index"});
  Values& items = items_of(self);
  const Int at = from_end(items, p.integer(0, -1));
  if (items.empty()) throw invalid("pop from empty list");
  if (at < 0 || at >= static_cast<Int>(items.size())) throw invalid("pop index out of range");
  const auto place = items.begin() + static_cast<std::ptrdiff_t>(at);
  e.meter.step(1 + static_cast<size_t>(items.end() - place) / 8);
  Value item = std::move(*place);
  items.erase(place);
  return item;
}

Value remove_item_method(Evaluator& e, const Value& self, const Args& args) {
  const Params p(args, "remove", {"value"}, 1);
  Values& items = items_of(self);
  for (auto at = items.begin(); at != items.end(); ++at) {
    if (!equals(e.meter, *at, *p[0])) continue;
    e.meter.step(static_cast<size_t>(items.end() - at) / 8);
    items.erase(at);
    return None{};
  }
  throw invalid("list.remove(x): x not in list");
}

Value clear_method(Evaluator&, const Value& self, const Args& args) {
  const Params p(args, "clear", {});
  items_of(self).clear();
  return None{};
}

Value reverse_method(Evaluator& e, const Value& self, const Args& args) {
  const Params p(args, "reverse", {});
  e.meter.step(items_of(self).size() / 8);
  std::ranges::reverse(items_of(self));
  return None{};
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
      {"index", index_method},     {"count", list_count_method}, {"copy", list_copy_method},
      {"append", append_method},   {"clear", clear_method},      {"extend", extend_method},
      {"insert", insert_method},   {"pop", pop_method},          {"remove", remove_item_method},
      {"reverse", reverse_method}, {"sort", forbidden_method},
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
