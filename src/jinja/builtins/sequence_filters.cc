#include <algorithm>

#include "jinja/builtins/params.h"
#include "jinja/builtins/tables.h"
#include "jinja/builtins/text_ops.h"
#include "jinja/value/print.h"
#include "jinja/value/unicode.h"

namespace quire::jinja {
namespace {

// item.a.0.b for the attribute "a.0.b"; the item itself without an attribute.
class Getter {
 public:
  Getter(Evaluator& e, const Value* attribute, const Value* fallback = nullptr) : e_(e), fallback_(fallback) {
    if (attribute == nullptr || attribute->is_none()) return;
    if (attribute->text() == nullptr) {
      parts_.push_back(*attribute);
      return;
    }
    const std::string dot = ".";
    for (const std::string_view part : split(e.meter, attribute->text()->bytes, &dot, -1, false)) {
      const bool is_number =
          !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string_view::npos;
      parts_.push_back(is_number ? Value(Int{std::stol(std::string(part))}) : make_text(e.meter, std::string(part)));
    }
  }

  Value operator()(const Value& item) const {
    Value v = item;
    for (const Value& part : parts_) {
      v = e_.subscript(v, part);
      if (v.is_undefined() && fallback_ != nullptr && !fallback_->is_none()) v = *fallback_;
    }
    return v;
  }

 private:
  Evaluator& e_;
  const Value* fallback_;
  Values parts_;
};

// The sort key of a value: text ignores case unless `case_sensitive`.
Value comparable(Evaluator& e, const Value& v, bool case_sensitive) {
  return case_sensitive || v.text() == nullptr ? v : make_text(e.meter, to_lower(v.text()->bytes));
}

// Sorts items by their keys, stably; keys are lists that compare element by element.
Values sorted(Evaluator& e, const Values& items, const Values& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return reverse ? less(e.meter, keys[b], keys[a]) : less(e.meter, keys[a], keys[b]);
  });
  Values out;
  out.reserve(items.size());
  for (const size_t i : order) out.push_back(items[i]);
  return out;
}

Value list(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "list", {});
  return make_sequence(e.meter, iterate(e.meter, v));
}

Value first(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "first", {});
  if (v.is<Ref<Generator>>()) {  // reads only one item
    Generator& g = *v.as<Ref<Generator>>();
    if (g.next < g.items.size()) return g.items[g.next++];
  } else if (v.text() != nullptr || (v.sequence() != nullptr && v.sequence()->kind <= SequenceKind::kRange)) {
    if (length_of(v) > 0) return e.subscript(v, Int{0});
  } else if (const Values items = iterate(e.meter, v); !items.empty()) {
    return items.front();
  }
  return make_undefined("No first item, sequence was empty.");
}

Value last(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "last", {});
  if (v.is<Ref<Generator>>()) throw invalid("'generator' object is not reversible");
  if (v.text() != nullptr && !v.text()->bytes.empty()) return e.subscript(v, Int{-1});
  const Values items = iterate(e.meter, v);
  return items.empty() ? make_undefined("No last item, sequence was empty.") : items.back();
}

Value items(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "items", {});
  Values out;
  if (v.is_undefined()) return make_generator(e.meter, {});
  if (v.dict() == nullptr) throw invalid("Can only get item pairs from a mapping.");
  for (const auto& [key, value] : v.dict()->items) out.push_back(make_tuple(e.meter, {key, value}));
  return make_generator(e.meter, std::move(out));
}

Value dictsort(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "dictsort", {"case_sensitive", "by", "reverse"});
  if (v.is_undefined()) fail_undefined(v);
  if (v.dict() == nullptr) throw invalid("'{}' object has no attribute 'items'", type_name(v));
  const std::string by = p[1] != nullptr ? p.text(1) : "key";
  if (by != "key" && by != "value") throw invalid("You can only sort by either \"key\" or \"value\"");
  Values pairs, keys;
  for (const auto& [key, value] : v.dict()->items) {
    pairs.push_back(make_tuple(e.meter, {key, value}));
    keys.push_back(comparable(e, by == "key" ? key : value, p.flag(0, false)));
  }
  return make_sequence(e.meter, sorted(e, pairs, keys, p.flag(2, false)));
}

Value sort(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "sort", {"reverse", "case_sensitive", "attribute"});
  std::vector<Getter> getters;
  if (p.has(2) && p[2]->text() != nullptr) {
    const std::string comma = ",";
    for (const std::string_view part : split(e.meter, p.text(2), &comma, -1, false)) {
      const Value name = make_text(e.meter, std::string(part));
      getters.emplace_back(e, &name);
    }
  } else {
    getters.emplace_back(e, p[2]);
  }
  const Values all = iterate(e.meter, v);
  Values keys;
  for (const Value& item : all) {
    Values key;
    for (const Getter& get : getters) key.push_back(comparable(e, get(item), p.flag(1, false)));
    keys.push_back(make_sequence(e.meter, std::move(key)));
  }
  return make_sequence(e.meter, sorted(e, all, keys, p.flag(0, false)));
}

Value unique(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "unique", {"case_sensitive", "attribute"});
  const Getter get(e, p[1]);
  std::unordered_multimap<size_t, Value> seen;
  Values out;
  for (const Value& item : iterate(e.meter, v)) {
    const Value key = comparable(e, get(item), p.flag(0, false));
    const size_t hash = hash_of(key);
    const auto [from, to] = seen.equal_range(hash);
    e.meter.step();
    if (std::any_of(from, to, [&](const auto& other) { return equals(e.meter, other.second, key); })) continue;
    seen.emplace(hash, key);
    out.push_back(item);
  }
  return make_generator(e.meter, std::move(out));
}

Value join(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "join", {"d", "attribute"});
  const Getter get(e, p[1]);
  const std::string between = p[0] != nullptr ? text_of(e.meter, *p[0]) : "";
  std::string out;
  Charge charge(e.meter, 0);
  bool is_first = true;
  for (const Value& item : iterate(e.meter, v)) {
    const size_t before = out.size();
    if (!is_first) out += between;
    is_first = false;
    print(e.meter, get(item), out);
    charge.grow(out.size() - before);
  }
  return make_text(e.meter, std::move(out));
}

Value map(Evaluator& e, const Value& v, const Args& args) {
  Values out;
  if (args.positional.empty() && !args.named.empty() && args.named[0].first == "attribute") {
    const Params p(args, "map", {"attribute", "default"});
    const Getter get(e, p[0], p[1]);
    for (const Value& item : iterate(e.meter, v)) out.push_back(get(item));
    return make_generator(e.meter, std::move(out));
  }
  if (args.positional.empty() || args.positional[0].text() == nullptr) throw invalid("map requires a filter argument");
  const Args rest{{args.positional.begin() + 1, args.positional.end()}, args.named};
  for (const Value& item : iterate(e.meter, v))
    out.push_back(e.apply_filter(args.positional[0].text()->bytes, item, rest));
  return make_generator(e.meter, std::move(out));
}

template <bool kKeep, bool kByAttribute>
Value select(Evaluator& e, const Value& v, const Args& args) {
  constexpr size_t kTest = kByAttribute ? 1 : 0;
  if (kByAttribute && args.positional.empty()) throw invalid("Missing parameter for attribute name");
  if (!is_true(v)) return make_generator(e.meter, {});
  const Getter get(e, kByAttribute ? &args.positional[0] : nullptr);
  const bool has_test = args.positional.size() > kTest;
  if (has_test && args.positional[kTest].text() == nullptr) throw invalid("the name of a test must be a string");
  Args rest;
  if (has_test) rest = {{args.positional.begin() + kTest + 1, args.positional.end()}, args.named};
  Values out;
  for (const Value& item : iterate(e.meter, v)) {
    e.meter.step();
    const Value subject = get(item);
    const bool holds = has_test ? e.apply_test(args.positional[kTest].text()->bytes, subject, rest) : is_true(subject);
    if (holds == kKeep) out.push_back(item);
  }
  return make_generator(e.meter, std::move(out));
}

template <bool kMaximum>
Value extreme(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, kMaximum ? "max" : "min", {"case_sensitive", "attribute"});
  const Getter get(e, p[1]);
  std::optional<Value> best, best_key;
  for (const Value& item : iterate(e.meter, v)) {
    Value key = comparable(e, get(item), p.flag(0, false));
    if (best && !(kMaximum ? less(e.meter, *best_key, key) : less(e.meter, key, *best_key))) continue;
    best = item;
    best_key = std::move(key);
  }
  return best ? *best : make_undefined("No aggregated item, sequence was empty.");
}

Value sum(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "sum", {"attribute", "start"});
  const Getter get(e, p[0]);
  Value total = p[1] != nullptr ? *p[1] : Value(Int{0});
  if (total.text() != nullptr) throw invalid("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : iterate(e.meter, v)) total = arithmetic(e, Op::kAdd, total, get(item));
  return total;
}

Value reverse(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "reverse", {});
  const Value minus_one = Int{-1};
  if (v.text() != nullptr) return slice(e, v, nullptr, nullptr, &minus_one);
  Values out = iterate(e.meter, v);
  std::reverse(out.begin(), out.end());
  return v.is<Ref<Generator>>() ? make_sequence(e.meter, std::move(out)) : make_generator(e.meter, std::move(out));
}

Value batch(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "batch", {"linecount", "fill_with"}, 1);
  const Int size = p.integer(0, 1);
  if (size < 1 || size > 100'000) throw invalid("batch: a size of {}", size);
  Values out, row;
  for (const Value& item : iterate(e.meter, v)) {
    if (static_cast<Int>(row.size()) == size) out.push_back(make_sequence(e.meter, std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    while (p.has(1) && static_cast<Int>(row.size()) < size) row.push_back(*p[1]);
    out.push_back(make_sequence(e.meter, std::move(row)));
  }
  return make_generator(e.meter, std::move(out));
}

Value slices(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "slice", {"slices", "fill_with"}, 1);
  const Int wanted = p.integer(0, 1);
  if (wanted < 1 || wanted > 100'000) throw invalid("slice: {} slices", wanted);
  const auto n = static_cast<size_t>(wanted);
  const Values all = iterate(e.meter, v);
  Values out;
  for (size_t i = 0, at = 0; i < n; ++i) {
    const size_t count = all.size() / n + (i < all.size() % n ? 1 : 0);
    Values part(all.begin() + static_cast<std::ptrdiff_t>(at), all.begin() + static_cast<std::ptrdiff_t>(at + count));
    at += count;
    if (p.has(1) && i >= all.size() % n) part.push_back(*p[1]);
    out.push_back(make_sequence(e.meter, std::move(part)));
  }
  return make_generator(e.meter, std::move(out));
}

Value groupby(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "groupby", {"attribute", "default", "case_sensitive"}, 1);
  const Getter get(e, p[0], p[1]);
  const Values all = iterate(e.meter, v);
  Values keys;
  for (const Value& item : all) keys.push_back(comparable(e, get(item), p.flag(2, false)));
  Values out, group;
  std::optional<Value> key;
  const auto close = [&] {
    if (group.empty()) return;
    const Value shown = get(group.front());
    out.push_back(make_tuple(e.meter, {shown, make_sequence(e.meter, std::exchange(group, {}))}));
  };
  for (const Value& item : sorted(e, all, keys, false)) {
    Value now = comparable(e, get(item), p.flag(2, false));
    if (key && !equals(e.meter, *key, now)) close();
    key = std::move(now);
    group.push_back(item);
  }
  close();
  return make_sequence(e.meter, std::move(out));
}

}  // namespace

const FilterTable& sequence_filters() {
  static const FilterTable kTable = {
      {"batch", batch},
      {"dictsort", dictsort},
      {"first", first},
      {"groupby", groupby},
      {"items", items},
      {"join", join},
      {"last", last},
      {"list", list},
      {"map", map},
      {"max", extreme<true>},
      {"min", extreme<false>},
      {"reject", select<false, false>},
      {"rejectattr", select<false, true>},
      {"reverse", reverse},
      {"select", select<true, false>},
      {"selectattr", select<true, true>},
      {"slice", slices},
      {"sort", sort},
      {"sum", sum},
      {"unique", unique},
  };
  return kTable;
}

}  // namespace quire::jinja
