// Arrays and objects: sets of schemas to grammars.
#include <algorithm>
#include <map>
#include <unordered_set>

#include "base/quote.h"
#include "grammar/schema_compiler.h"

namespace quire::grammar {

NodeId SchemaCompiler::arrays(const Bases& bases) {
  Counts counts = counts_of(bases, "minItems", "maxItems");
  std::vector<Set> prefix;
  Set rest;
  size_t longest = 0;
  struct Items {
    const Json* prefix = nullptr;
    const Json* rest = nullptr;
  };
  std::vector<Items> all;
  const Json* contains = nullptr;
  for (const Json* base : bases) {
    Items items{.prefix = find(*base, "prefixItems"), .rest = find(*base, "items")};
    if (items.rest != nullptr && items.rest->is_array()) {  // until draft 2019-09
      items = {.prefix = items.rest, .rest = find(*base, "additionalItems")};
    }
    if (items.prefix != nullptr && !items.prefix->is_array())
      throw document_.invalid_at(*base, "prefixItems", "expected an array, found {}", describe(*items.prefix));
    if (items.prefix != nullptr) longest = std::max(longest, items.prefix->size());
    if (items.rest != nullptr) rest.push_back({Kind::kWhole, items.rest});
    all.push_back(items);
    if (const Json* unique = find(*base, "uniqueItems"); unique != nullptr && *unique == true && counts.most > 1)
      throw document_.unsupported_at(*base, "uniqueItems", "true is not supported");
    if (const Json* part = find(*base, "contains")) {
      if (contains != nullptr) throw document_.unsupported_at(*base, "contains", "more than one is not supported");
      contains = part;
    }
  }
  for (size_t i = 0; i < longest; ++i) {
    Set set;
    for (const Items& items : all) {
      if (items.prefix != nullptr && i < items.prefix->size()) {
        set.push_back({Kind::kWhole, &document_.at(*items.prefix, i)});
      } else if (items.rest != nullptr) {
        set.push_back({Kind::kWhole, items.rest});
      }
    }
    prefix.push_back(std::move(set));
  }
  const RegexId open = s_.concat(s_.literal("["), space_), close = s_.concat(space_, s_.literal("]"));
  const RegexId comma = s_.concat({space_, s_.literal(","), space_});
  const NodeId empty = regex(s_.concat(open, s_.literal("]")));
  if (counts.least > counts.most) return parts_.nothing();
  if (contains != nullptr) {
    if (longest > 0 || counts.least > 1 || counts.most != kUnbounded)
      throw document_.unsupported_at(*contains, "contains",
                                     "next to minItems, maxItems or prefixItems is not supported");
    Set wanted = rest;
    wanted.push_back({Kind::kWhole, contains});
    const NodeId item = compile(rest), found = compile(wanted);
    const NodeId before_it = parts_.nodes.repeat(parts_.nodes.sequence(item, regex(comma)), 0, kUnbounded);
    const NodeId after_it = parts_.nodes.repeat(before(comma, item), 0, kUnbounded);
    return before(open, parts_.nodes.sequence(
                            before_it, parts_.nodes.sequence(found, parts_.nodes.sequence(after_it, regex(close)))));
  }
  if (counts.most == 0) return empty;
  // After n items, from the end: the closing bracket, or a comma and more.
  const uint32_t fixed = static_cast<uint32_t>(std::min<size_t>(longest, counts.most));
  NodeId more = parts_.nothing();  // after `fixed` items
  if (counts.most > fixed) {
    const NodeId item = compile(rest);
    const uint32_t least = counts.least > fixed ? counts.least - fixed : 0;
    const uint32_t most = counts.most == kUnbounded ? kUnbounded : counts.most - fixed;
    if (fixed == 0) {
      const NodeId others =
          parts_.nodes.repeat(before(comma, item), least > 0 ? least - 1 : 0, most == kUnbounded ? most : most - 1);
      const NodeId some = before(open, parts_.nodes.sequence(item, parts_.nodes.sequence(others, regex(close))));
      return parts_.nodes.choice({counts.least == 0 ? empty : parts_.nothing(), is_nothing(item) ? item : some});
    }
    more = parts_.nodes.sequence(parts_.nodes.repeat(is_nothing(item) ? item : before(comma, item), least, most),
                                 regex(close));
  } else {
    more = regex(close);
  }
  for (uint32_t i = fixed; i-- > 0;) {
    const NodeId item = compile(prefix[i]);
    const NodeId rest_of = is_nothing(item) ? item : parts_.nodes.sequence(item, more);
    const bool may_end = i >= counts.least;
    if (i == 0) {
      return parts_.nodes.choice(
          {may_end ? empty : parts_.nothing(), is_nothing(rest_of) ? rest_of : before(open, rest_of)});
    }
    more = parts_.nodes.choice(
        {may_end ? regex(close) : parts_.nothing(), is_nothing(rest_of) ? rest_of : before(comma, rest_of)});
  }
  return more;
}

RegexId SchemaCompiler::key_literal(std::string_view name) {
  const RegexId quotes = s_.literal("\"");
  return s_.concat({quotes, encoder_.literal(name, Encoding::kJson), quotes});
}

NodeId SchemaCompiler::member(RegexId key, NodeId value) {
  if (is_nothing(value) || s_.is_empty(key)) return parts_.nothing();
  return before(s_.concat({key, space_, s_.literal(":"), space_}), value);
}

NodeId SchemaCompiler::objects(const Bases& bases) {
  std::vector<std::string> names;
  std::vector<size_t> chains;  // names of one chain keep their order
  size_t next_chain = 0;
  std::vector<std::string> listed_names;  // of `required`
  std::unordered_set<std::string> known;
  const auto add_name = [&](const std::string& name) {
    if (!known.insert(name).second) return;
    names.push_back(name);
    chains.push_back(next_chain);
  };
  RegexId names_allowed = s_.concat({s_.literal("\""), text_, s_.literal("\"")});
  bool any_name = true;
  for (const Json* base : bases) {
    for (const char* keyword : {"properties", "patternProperties"}) {
      const Json* value = find(*base, keyword);
      if (value != nullptr && !value->is_object())
        throw document_.invalid_at(*base, keyword, "expected an object, found {}", describe(*value));
    }
    if (const Json* properties = find(*base, "properties")) {
      for (const auto& [name, schema] : properties->items()) {
        add_name(name);
        if (base->contains(kAnyOrder)) ++next_chain;
      }
      ++next_chain;
    }
    if (const Json* only = find(*base, "propertyNames")) {
      static const Json kStrings = {{"type", "string"}};
      const NodeId node = compile(Set{{Kind::kWhole, only}, {Kind::kBase, &kStrings}});
      if (parts_.nodes[node].kind != NodeKind::kRegex)
        throw document_.unsupported_at(*base, "propertyNames", "is nested too deep");
      names_allowed = any_name ? parts_.nodes[node].a : s_.all_of({names_allowed, parts_.nodes[node].a});
      any_name = false;
    }
  }
  for (const Json* base : bases) {
    const Json* required = find(*base, "required");
    if (required == nullptr) continue;
    if (!required->is_array())
      throw document_.invalid_at(*base, "required", "expected an array, found {}", describe(*required));
    for (const Json& name : *required) {
      if (!name.is_string())
        throw document_.invalid_at(*base, "required", "expected strings, found {}", describe(name));
      add_name(name.get<std::string>());
      listed_names.push_back(name.get<std::string>());
      ++next_chain;
    }
  }
  bool impossible = false;
  std::vector<Member> members = declared_members(bases, names, any_name ? kNothing : names_allowed, impossible);
  for (size_t i = 0; i < members.size(); ++i) {
    members[i].chain = chains[i];
    members[i].listed = static_cast<size_t>(std::ranges::find(listed_names, names[i]) - listed_names.begin());
  }
  std::erase_if(members, [&](const Member& m) { return is_nothing(m.node); });
  if (impossible) return parts_.nothing();
  const NodeId other = other_members(bases, names, names_allowed);
  const Counts counts = counts_of(bases, "minProperties", "maxProperties");
  const NodeId node = object_of(members, other, counts);
  // Authors also give an order in `required`: its names first, then the rest.
  std::vector<Member> listed = members;
  std::ranges::stable_sort(listed, {}, [](const Member& m) { return m.listed; });
  const bool same = std::ranges::equal(listed, members, {}, &Member::node, &Member::node);
  if (same || std::ranges::any_of(members, [&](const Member& m) { return m.chain != members[0].chain; })) return node;
  return parts_.nodes.choice({node, object_of(listed, other, counts)});
}

// names_allowed: kNothing if all are.
std::vector<SchemaCompiler::Member> SchemaCompiler::declared_members(const Bases& bases,
                                                                     const std::vector<std::string>& names,
                                                                     RegexId names_allowed, bool& impossible) {
  std::vector<Set> sets;
  std::vector<bool> required(names.size(), false);
  for (size_t i = 0; i < names.size(); ++i) {
    Set set;
    const std::string text = Json(names[i]).dump();
    for (const Json* base : bases) {
      bool named = false;
      if (const Json* properties = find(*base, "properties"); properties != nullptr && properties->contains(names[i])) {
        set.push_back({Kind::kWhole, &document_.at(*properties, names[i])});
        named = true;
      }
      if (const Json* patterns = find(*base, "patternProperties")) {
        for (const auto& [pattern, schema] : patterns->items()) {
          const RegexId matching = pattern_regex(*base, "patternProperties", pattern);
          if (!s_.matches(matching, std::string_view(text).substr(1, text.size() - 2))) continue;
          set.push_back({Kind::kWhole, &document_.at(*patterns, pattern)});
          named = true;
        }
      }
      if (const Json* others = find(*base, "additionalProperties"); others != nullptr && !named)
        set.push_back({Kind::kWhole, others});
      if (const Json* needed = find(*base, "required"))
        required[i] = required[i] || std::ranges::find(*needed, Json(names[i])) != needed->end();
    }
    if (names_allowed != kNothing && !s_.matches(names_allowed, text)) {
      static const Json kNever = false;
      set.push_back({Kind::kWhole, &kNever});
    }
    sets.push_back(std::move(set));
  }
  // The required ones first: if one is impossible, so is the object, and the others need not be compiled.
  std::vector<NodeId> values(names.size());
  for (const bool now : {true, false}) {
    for (size_t i = 0; i < names.size(); ++i) {
      if (required[i] != now) continue;
      values[i] = compile(sets[i]);
      if (now && is_nothing(values[i])) {
        impossible = true;
        return {};
      }
    }
  }
  std::vector<Member> members;
  for (size_t i = 0; i < names.size(); ++i) {
    members.push_back({.node = member(key_literal(names[i]), values[i]), .required = required[i]});
  }
  return members;
}

// Members that `properties` and `required` do not name: by the patterns that their names match.
NodeId SchemaCompiler::other_members(const Bases& bases, const std::vector<std::string>& names, RegexId names_allowed) {
  constexpr size_t kMostClasses = 32;
  struct Class {
    RegexId keys;
    std::vector<const Json*> matched;  // schemas of patternProperties
  };
  RegexId keys = names_allowed;
  if (!names.empty()) {
    std::vector<RegexId> literals;
    std::vector<std::string> ascii;
    for (const std::string& name : names) {
      const std::string text = Json(name).dump();
      if (std::ranges::all_of(text, [](char c) { return c >= ' ' && c < 0x7F; })) {
        ascii.push_back(text);
      } else {
        literals.push_back(key_literal(name));
      }
    }
    literals.push_back(s_.one_of(std::move(ascii)));
    keys = s_.all_of({keys, s_.negate(s_.any_of(std::move(literals)))});
  }
  std::vector<Class> classes{{keys, {}}};
  for (const Json* base : bases) {
    const Json* patterns = find(*base, "patternProperties");
    if (patterns == nullptr) continue;
    for (const auto& [pattern, schema] : patterns->items()) {
      const Json* part = &document_.at(*patterns, pattern);
      const RegexId content = pattern_regex(*base, "patternProperties", pattern);
      const RegexId matching = s_.concat({s_.literal("\""), content, s_.literal("\"")});
      std::vector<Class> split;
      for (const Class& c : classes) {
        Class inside{s_.all_of({c.keys, matching}), c.matched},
            outside{s_.all_of({c.keys, s_.negate(matching)}), c.matched};
        inside.matched.push_back(part);
        if (!s_.is_empty(inside.keys)) split.push_back(std::move(inside));
        if (!s_.is_empty(outside.keys)) split.push_back(std::move(outside));
      }
      classes = std::move(split);
      if (classes.size() > kMostClasses)
        throw document_.unsupported_at(*base, "patternProperties", "the patterns overlap in too many ways");
    }
  }
  std::vector<NodeId> made;
  for (const Class& c : classes) {
    Set set;
    for (const Json* base : bases) {
      bool named = false;
      if (const Json* patterns = find(*base, "patternProperties")) {
        for (const auto& [pattern, schema] : patterns->items()) {
          const Json* part = &document_.at(*patterns, pattern);
          if (std::ranges::find(c.matched, part) == c.matched.end()) continue;
          set.push_back({Kind::kWhole, part});
          named = true;
        }
      }
      if (const Json* others = find(*base, "additionalProperties"); others != nullptr && !named)
        set.push_back({Kind::kWhole, others});
    }
    made.push_back(member(c.keys, compile(set)));
  }
  return parts_.nodes.choice(std::move(made));
}

// Members of one chain come in their order, those of different chains in any, and others between them. A state is how
// far each chain has come, and how many members there are as far as that matters.
NodeId SchemaCompiler::object_of(const std::vector<Member>& members, NodeId other, Counts counts) {
  constexpr size_t kMostStates = 5000;
  const auto required = static_cast<uint32_t>(std::ranges::count_if(members, &Member::required));
  const bool closed = is_nothing(other);
  if (counts.least <= required) counts.least = 0;
  if (closed && counts.most >= members.size()) counts.most = kUnbounded;
  if (counts.least > counts.most || required > counts.most) return parts_.nothing();
  const RegexId comma = s_.concat({space_, s_.literal(","), space_}), open = s_.concat(s_.literal("{"), space_);
  const NodeId close = regex(s_.concat(space_, s_.literal("}"))), close_empty = regex(s_.literal("}"));
  if (members.empty()) {
    const NodeId empty = counts.least == 0 ? close_empty : parts_.nothing();
    if (closed || counts.most == 0) return is_nothing(empty) ? empty : before(open, empty);
    const NodeId more = parts_.nodes.repeat(before(comma, other), counts.least > 0 ? counts.least - 1 : 0,
                                            counts.most == kUnbounded ? kUnbounded : counts.most - 1);
    const NodeId some = parts_.nodes.sequence(other, parts_.nodes.sequence(more, close));
    return before(open, parts_.nodes.choice({empty, some}));
  }
  const uint32_t top = counts.most != kUnbounded ? counts.most : std::max(1u, counts.least);
  std::vector<std::vector<const Member*>> chains;
  const auto states_of = [&] {
    size_t states = top + size_t{1};
    for (const auto& chain : chains) states = std::min(states * (chain.size() + 1), SIZE_MAX / 100'000);
    return states;
  };
  std::map<size_t, std::vector<const Member*>> by_chain;
  for (const Member& m : members) by_chain[m.chain].push_back(&m);
  for (auto& [number, chain] : by_chain) chains.push_back(std::move(chain));
  if (states_of() > kMostStates) {  // too many orders: only that of the schema
    for (size_t i = 1; i < chains.size(); ++i) chains[0].insert(chains[0].end(), chains[i].begin(), chains[i].end());
    chains.resize(1);
  }
  if (states_of() > limits_.nodes) s_.budget().exhausted();
  const size_t columns = top + size_t{1}, places = states_of() / columns;
  // outer: what follows; next_of[c]: the same, but the next member is one of chain c. Later places have larger numbers.
  std::vector<NodeId> outer(places * columns, parts_.nothing());
  std::vector<std::vector<NodeId>> next_of(chains.size(), outer);
  for (size_t place = places; place-- > 0;) {
    for (uint32_t n = top + 1; n-- > 0;) {
      s_.budget().spend(chains.size());
      const size_t state = place * columns + n;
      const uint32_t next = std::min(n + 1, top);
      const bool full = counts.most != kUnbounded && n == top;
      const auto with_comma = [&](NodeId node) { return n == 0 || is_nothing(node) ? node : before(comma, node); };
      std::vector<NodeId> made;
      bool may_end = n >= counts.least;
      for (size_t c = 0, stride = 1; c < chains.size(); stride *= chains[c].size() + 1, ++c) {
        const size_t at = place / stride % (chains[c].size() + 1);
        if (at == chains[c].size()) continue;
        may_end = may_end && std::all_of(chains[c].begin() + static_cast<std::ptrdiff_t>(at), chains[c].end(),
                                         [](const Member* m) { return !m->required; });
        const Member& m = *chains[c][at];
        const size_t after = (place + stride) * columns;
        const NodeId taken = full ? parts_.nothing() : with_comma(parts_.nodes.sequence(m.node, outer[after + next]));
        next_of[c][state] = m.required ? taken : parts_.nodes.choice({taken, next_of[c][after + n]});
        made.push_back(next_of[c][state]);
      }
      if (may_end) made.push_back(n == 0 ? close_empty : close);
      outer[state] = parts_.nodes.choice(std::move(made));
      if (closed || full) continue;
      if (next != n) {
        const NodeId more = parts_.nodes.sequence(other, outer[place * columns + next]);
        outer[state] = parts_.nodes.choice({outer[state], with_comma(more)});
      } else {
        outer[state] = parts_.nodes.sequence(parts_.nodes.repeat(with_comma(other), 0, kUnbounded), outer[state]);
      }
    }
  }
  return is_nothing(outer[0]) ? outer[0] : before(open, outer[0]);
}

}  // namespace quire::grammar
