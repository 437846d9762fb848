#include "jinja/value/value.h"

#include <algorithm>
#include <cmath>

#include "base/text/text_search.h"
#include "jinja/loop.h"
#include "jinja/value/unicode.h"

namespace quire::jinja {
namespace {

constexpr size_t kIndexFrom = 9;

int checked_depth(int depth) {
  if (depth > kMaxValueDepth) throw invalid("values are nested more than {} deep", kMaxValueDepth);
  return depth;
}

// The depth of a value that becomes an item of another.
int held_depth(const Value& v) {
  if (const Sequence* s = v.sequence()) s->held = true;
  if (v.is<Ref<const Callable>>() && v.as<Ref<const Callable>>()->of_list)
    throw invalid("the method '{}' of a list can only be called", v.as<Ref<const Callable>>()->name);
  return value_depth(v);
}

int depth_of_all(const Values& items) {
  int depth = 0;
  for (const Value& v : items) depth = std::max(depth, held_depth(v));
  return checked_depth(depth + 1);
}

}  // namespace

void Meter::fail_steps() { throw no_resource("the template takes too many steps"); }
void Meter::fail_memory() { throw no_resource("the template needs too much memory"); }

int value_depth(const Value& v) {
  if (const Sequence* s = v.sequence()) return s->depth;
  if (const Dict* d = v.dict()) return d->depth;
  if (v.is<Ref<Generator>>()) return v.as<Ref<Generator>>()->depth;
  if (v.is<Ref<const Callable>>()) return v.as<Ref<const Callable>>()->depth;
  if (v.is<Ref<LoopState>>()) return v.as<Ref<LoopState>>()->value_depth();
  return 0;
}

Value make_text(Meter& meter, std::string bytes, bool markup) {
  meter.step(bytes.size() / 64 + 1);
  const size_t cost = sizeof(Text) + bytes.capacity();
  return TextRef(new Text{std::move(bytes), markup, Charge(meter, cost)});
}

Value make_sequence(Meter& meter, Values items, SequenceKind kind) {
  meter.step(items.size() + 1);
  const size_t cost = sizeof(Sequence) + items.capacity() * sizeof(Value);
  const int depth = depth_of_all(items);
  return Ref<const Sequence>(new Sequence{kind, std::move(items), depth, Charge(meter, cost)});
}

void insert_item(Meter& meter, const Value& list, size_t at, const Value& item) {
  auto& changed = const_cast<Sequence&>(*list.sequence());  // made as an object that is not const
  const int depth = checked_depth(held_depth(item) + 1);
  if (depth > changed.depth && (changed.held || item.sequence() == &changed))
    throw invalid("a list inside of another value cannot take an item that is nested deeper than its others");
  meter.step(1 + (changed.items.size() - at) / 8);
  changed.charge.grow(sizeof(Value));
  changed.items.insert(changed.items.begin() + static_cast<std::ptrdiff_t>(at), item);
  changed.depth = std::max(changed.depth, depth);
}

Value make_generator(Meter& meter, Values items) {
  meter.step(items.size() + 1);
  const size_t cost = sizeof(Generator) + items.capacity() * sizeof(Value);
  const int depth = depth_of_all(items);
  return Ref<Generator>(new Generator{std::move(items), 0, depth, Charge(meter, cost)});
}

Value make_dict(Meter& meter, std::vector<std::pair<Value, Value>> items) {
  meter.step(items.size() + 1);
  const size_t cost = sizeof(Dict) + items.size() * (sizeof(items[0]) + 48);
  Ref<Dict> dict(new Dict{{}, {}, 1, Charge(meter, cost)});
  dict->items.reserve(items.size());
  const bool indexed = items.size() >= kIndexFrom;
  int depth = 0;
  for (auto& [key, value] : items) {
    depth = std::max({depth, held_depth(key), held_depth(value)});
    const size_t hash = indexed || key.text() == nullptr ? hash_of(key) : 0;
    if (const Value* old = dict->find(key)) {
      *const_cast<Value*>(old) = std::move(value);  // the dict is not shared yet
      continue;
    }
    if (indexed) dict->index.emplace(hash, dict->items.size());
    dict->items.emplace_back(std::move(key), std::move(value));
  }
  if (dict->items.size() < kIndexFrom) dict->index.clear();
  dict->depth = checked_depth(depth + 1);
  return Ref<const Dict>(std::move(dict));
}

Value make_callable(Meter& meter, std::string name, std::function<Value(Evaluator&, const Args&)> call,
                    const Value* self) {
  const int depth = self == nullptr ? 1 : checked_depth(value_depth(*self) + 1);
  const bool of_list = self != nullptr && self->sequence() != nullptr;
  return Ref<const Callable>(new Callable{std::move(name), std::move(call), depth, false, Charge(meter, 192), of_list});
}

Value make_undefined(std::string message) { return std::make_shared<const Missing>(Missing{std::move(message)}); }

const Value* Dict::find(std::string_view key) const {
  if (!index.empty()) {
    const auto [first, last] = index.equal_range(std::hash<std::string_view>{}(key));
    for (auto it = first; it != last; ++it) {
      const Text* t = items[it->second].first.text();
      if (t != nullptr && t->bytes == key) return &items[it->second].second;
    }
    return nullptr;
  }
  for (const auto& [k, v] : items) {
    const Text* t = k.text();
    if (t != nullptr && t->bytes == key) return &v;
  }
  return nullptr;
}

const Value* Dict::find(const Value& key) const {
  if (const Text* t = key.text()) return find(std::string_view(t->bytes));
  Meter meter(0);  // keys are scalars and short tuples
  const size_t hash = hash_of(key);
  if (!index.empty()) {
    const auto [first, last] = index.equal_range(hash);
    for (auto it = first; it != last; ++it)
      if (equals(meter, items[it->second].first, key)) return &items[it->second].second;
    return nullptr;
  }
  for (const auto& [k, v] : items)
    if (equals(meter, k, key)) return &v;
  return nullptr;
}

std::string_view type_name(const Value& v) {
  struct Namer {
    std::string_view operator()(const Ref<const Missing>&) const { return "Undefined"; }
    std::string_view operator()(None) const { return "NoneType"; }
    std::string_view operator()(bool) const { return "bool"; }
    std::string_view operator()(Int) const { return "int"; }
    std::string_view operator()(double) const { return "float"; }
    std::string_view operator()(const TextRef& t) const { return t->markup ? "Markup" : "str"; }
    std::string_view operator()(const Ref<const Sequence>& s) const {
      static constexpr std::string_view kNames[] = {"list", "tuple", "range", "dict_keys", "dict_values", "dict_items"};
      return kNames[static_cast<size_t>(s->kind)];
    }
    std::string_view operator()(const Ref<const Dict>&) const { return "dict"; }
    std::string_view operator()(const Ref<Generator>&) const { return "generator"; }
    std::string_view operator()(const Ref<Namespace>&) const { return "Namespace"; }
    std::string_view operator()(const Ref<const Callable>& c) const { return c->is_macro ? "Macro" : "function"; }
    std::string_view operator()(const Ref<LoopState>&) const { return "LoopContext"; }
  };
  return std::visit(Namer{}, v.variant());
}

std::string owner_name(const Value& v) { return v.is_none() ? "None" : std::string(type_name(v)) + " object"; }

bool is_true(const Value& v) {
  struct Truth {
    bool operator()(const Ref<const Missing>&) const { return false; }
    bool operator()(None) const { return false; }
    bool operator()(bool b) const { return b; }
    bool operator()(Int i) const { return i != 0; }
    bool operator()(double d) const { return d != 0; }
    bool operator()(const TextRef& t) const { return !t->bytes.empty(); }
    bool operator()(const Ref<const Sequence>& s) const { return !s->items.empty(); }
    bool operator()(const Ref<const Dict>& d) const { return !d->items.empty(); }
    bool operator()(const Ref<Generator>&) const { return true; }
    bool operator()(const Ref<Namespace>&) const { return true; }
    bool operator()(const Ref<const Callable>&) const { return true; }
    bool operator()(const Ref<LoopState>& l) const { return l != nullptr; }
  };
  return std::visit(Truth{}, v.variant());
}

bool equals(Meter& meter, const Value& a, const Value& b) {
  meter.step();
  if (a.is_number() && b.is_number()) {
    if (a.is_int() && b.is_int()) return a.to_int() == b.to_int();
    return static_cast<long double>(a.is_int() ? static_cast<long double>(a.to_int()) : a.as<double>()) ==
           static_cast<long double>(b.is_int() ? static_cast<long double>(b.to_int()) : b.as<double>());
  }
  if (a.variant().index() != b.variant().index()) return false;
  if (a.is_undefined() || a.is_none()) return true;
  if (const Text* t = a.text()) {
    const std::string& other = b.text()->bytes;
    if (t->bytes.size() != other.size()) return false;
    meter.step(other.size() / 64);
    return t->bytes == other;
  }
  if (const Sequence* s = a.sequence()) {
    const Sequence* o = b.sequence();
    if (s == o) return true;
    if (s->kind != o->kind || s->items.size() != o->items.size()) return false;
    for (size_t i = 0; i < s->items.size(); ++i)
      if (!equals(meter, s->items[i], o->items[i])) return false;
    return true;
  }
  if (const Dict* d = a.dict()) {
    const Dict* o = b.dict();
    if (d == o) return true;
    if (d->items.size() != o->items.size()) return false;
    for (const auto& [key, value] : d->items) {
      const Value* other = o->find(key);
      if (other == nullptr || !equals(meter, value, *other)) return false;
    }
    return true;
  }
  return a.variant() == b.variant();  // identity
}

size_t hash_of(const Value& v) {
  if (const Text* t = v.text()) return std::hash<std::string_view>{}(t->bytes);
  if (v.is_int()) return std::hash<int64_t>{}(static_cast<int64_t>(v.to_int()));
  if (v.is<double>()) {
    const double d = v.as<double>();
    return d == std::floor(d) && std::fabs(d) < 9e18 ? std::hash<int64_t>{}(static_cast<int64_t>(d))
                                                     : std::hash<double>{}(d);
  }
  const Sequence* s = v.sequence();
  if (s != nullptr && s->kind == SequenceKind::kTuple) {
    if (s->items.size() > 64 || s->depth > 4) throw unsupported("a tuple as large as this as a key");
    size_t hash = 1;
    for (const Value& item : s->items) hash = hash * 1000003 + hash_of(item);
    return hash;
  }
  if (s != nullptr || v.dict() != nullptr) throw invalid("unhashable type: '{}'", type_name(v));
  return v.variant().index();
}

bool less(Meter& meter, const Value& a, const Value& b, std::string_view op) {
  meter.step();
  if (a.is_number() && b.is_number()) {
    if (a.is_int() && b.is_int()) return a.to_int() < b.to_int();
    return (a.is_int() ? static_cast<long double>(a.to_int()) : a.as<double>()) <
           (b.is_int() ? static_cast<long double>(b.to_int()) : b.as<double>());
  }
  if (const Text* x = a.text(), *y = b.text(); x != nullptr && y != nullptr) {
    meter.step(std::min(x->bytes.size(), y->bytes.size()) / 64);
    return x->bytes < y->bytes;  // UTF-8 sorts as its characters do
  }
  if (const Sequence* x = a.sequence(), *y = b.sequence();
      x != nullptr && y != nullptr && x->kind == y->kind && x->kind <= SequenceKind::kTuple) {
    for (size_t i = 0; i < x->items.size() && i < y->items.size(); ++i)
      if (!equals(meter, x->items[i], y->items[i])) return less(meter, x->items[i], y->items[i], op);
    return x->items.size() < y->items.size();
  }
  if (const Value& u = a.is_undefined() ? a : b; u.is_undefined())
    throw invalid("{}",
                  u.as<Ref<const Missing>>() == nullptr ? "undefined value" : u.as<Ref<const Missing>>()->message);
  throw invalid("'{}' not supported between instances of '{}' and '{}'", op, type_name(a), type_name(b));
}

const Value* look_up(Meter& meter, const Dict& dict, const Value& key) {
  if (key.text() != nullptr) meter.step(key.text()->bytes.size() / 16);
  return dict.find(key);
}

bool contains(Meter& meter, const Value& item, const Value& container) {
  if (const Text* t = container.text()) {
    const Text* part = item.text();
    if (part == nullptr) throw invalid("'in <string>' requires string as left operand, not {}", type_name(item));
    meter.step((t->bytes.size() + part->bytes.size()) / 16);
    return find_text(t->bytes, part->bytes) != std::string::npos;
  }
  if (const Dict* d = container.dict()) return look_up(meter, *d, item) != nullptr;
  if (const Sequence* s = container.sequence()) {
    for (const Value& v : s->items)
      if (equals(meter, v, item)) return true;
    return false;
  }
  if (container.is<Ref<Generator>>()) {
    Generator& g = *container.as<Ref<Generator>>();
    while (g.next < g.items.size())
      if (equals(meter, g.items[g.next++], item)) return true;
    return false;
  }
  if (container.is_undefined()) return false;
  throw invalid("argument of type '{}' is not iterable", type_name(container));
}

Values iterate(Meter& meter, const Value& v) {
  if (const Sequence* s = v.sequence()) {
    meter.step(s->items.size() / 8);
    return s->items;
  }
  Values out;
  if (const Dict* d = v.dict()) {
    meter.step(d->items.size() / 8);
    for (const auto& [key, value] : d->items) out.push_back(key);
    return out;
  }
  if (const Text* t = v.text()) {
    meter.take(t->bytes.size() * 128);  // checked first; each character charges its own
    meter.give(t->bytes.size() * 128);
    for (size_t at = 0; at < t->bytes.size();) {
      const size_t start = at;
      utf8_decode(t->bytes, at);
      out.push_back(make_text(meter, t->bytes.substr(start, at - start)));
    }
    return out;
  }
  if (v.is<Ref<Generator>>()) {
    Generator& g = *v.as<Ref<Generator>>();
    out.assign(g.items.begin() + static_cast<std::ptrdiff_t>(g.next), g.items.end());
    g.next = g.items.size();
    return out;
  }
  if (v.is_undefined()) return out;
  throw invalid("'{}' object is not iterable", type_name(v));
}

int64_t length_of(const Value& v) {
  if (const Text* t = v.text()) return static_cast<int64_t>(char_count(t->bytes));
  if (const Sequence* s = v.sequence()) return static_cast<int64_t>(s->items.size());
  if (const Dict* d = v.dict()) return static_cast<int64_t>(d->items.size());
  if (v.is_undefined()) return 0;
  return -1;
}

}  // namespace quire::jinja
