// Arrays and objects: sets of schemas to grammars.
#include <algorithm>

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
      throw document_.unsupported_at(*contains, "contains", "next to minItems, maxItems or prefixItems is not supported");
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
      const NodeId others = parts_.nodes.repeat(before(comma, item), least > 0 ? least - 1 : 0, most == kUnbounded ? most : most - 1);
      const NodeId some = before(open, parts_.nodes.sequence(item, parts_.nodes.sequence(others, regex(close))));
      return parts_.nodes.choice({counts.least == 0 ? empty : parts_.nothing(), is_nothing(item) ? item : some});
    }
    more = parts_.nodes.sequence(parts_.nodes.repeat(is_nothing(item) ? item : before(comma, item), least, most), regex(close));
  } else {
    more = regex(close);
  }
  for (uint32_t i = fixed; i-- > 0;) {
    const NodeId item = compile(prefix[i]);
    const NodeId rest_of = is_nothing(item) ? item : parts_.nodes.sequence(item, more);
    const bool may_end = i >= counts.least;
    if (i == 0) {
      return parts_.nodes.choice({may_end ? empty : parts_.nothing(), is_nothing(rest_of) ? rest_of : before(open, rest_of)});
    }
    more = parts_.nodes.choice({may_end ? regex(close) : parts_.nothing(), is_nothing(rest_of) ? rest_of : before(comma, rest_of)});
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
  const auto add_name = [&](const std::string& name) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
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
      for (const auto& [name, schema] : properties->items()) add_name(name);
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
    if (!required->is_array()) throw document_.invalid_at(*base, "required", "expected an array, found {}", describe(*required));
    for (const Json& name : *required) {
      if (!name.is_string()) throw document_.invalid_at(*base, "required", "expected strings, found {}", describe(name));
      add_name(name.get<std::string>());
    }
  }
  bool impossible = false;
  const std::vector<Member> members = declared_members(bases, names, any_name ? kNothing : names_allowed, impossible);
  if (impossible) return parts_.nothing();
  const NodeId other = other_members(bases, names, names_allowed);
  return object_of(members, other, counts_of(bases, "minProperties", "maxProperties"));
}

// names_allowed: kNothing if all are.
std::vector<SchemaCompiler::Member> SchemaCompiler::declared_members(const Bases& bases, const std::vector<std::string>& names,
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
    if (!is_nothing(values[i])) members.push_back({member(key_literal(names[i]), values[i]), required[i]});
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
        Class inside{s_.all_of({c.keys, matching}), c.matched}, outside{s_.all_of({c.keys, s_.negate(matching)}), c.matched};
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

// Members in their order, each with a comma before it unless it is the first; then the others.
NodeId SchemaCompiler::object_of(const std::vector<Member>& members, NodeId other, Counts counts) {
  const auto required = static_cast<uint32_t>(std::ranges::count_if(members, &Member::required));
  if (is_nothing(other)) counts.most = std::min(counts.most, static_cast<uint32_t>(members.size()));
  if (counts.least <= required) counts.least = 0;
  if (is_nothing(other) && counts.most >= members.size()) counts.most = kUnbounded;
  const RegexId comma = s_.concat({space_, s_.literal(","), space_});
  const NodeId close = regex(s_.concat(space_, s_.literal("}"))), close_empty = regex(s_.literal("}"));
  const NodeId comma_other = is_nothing(other) ? other : before(comma, other);
  const auto others_after = [&](uint32_t n) {  // n > 0 members are there
    const uint32_t least = counts.least > n ? counts.least - n : 0;
    const uint32_t most = counts.most == kUnbounded ? kUnbounded : counts.most - n;
    return parts_.nodes.sequence(parts_.nodes.repeat(comma_other, least, most), close);
  };
  // tails[n]: what follows when n members are there; the last one where more of them make no difference. From the end:
  // after the last of `members` down to before the first.
  const uint32_t matter = counts.most != kUnbounded ? counts.most : std::max(1u, counts.least);
  const uint32_t top = std::min(matter, std::max(1u, static_cast<uint32_t>(members.size())));
  if (size_t{top} * members.size() > limits_.nodes) s_.budget().exhausted();
  std::vector<NodeId> tails(size_t{top} + 1);
  for (uint32_t n = 1; n <= top; ++n) tails[n] = others_after(n);
  tails[0] = parts_.nodes.choice(
      {counts.least == 0 ? close_empty : parts_.nothing(),
       counts.most > 0 && !is_nothing(other) ? parts_.nodes.sequence(other, others_after(1)) : parts_.nothing()});
  for (size_t i = members.size(); i-- > 0;) {
    std::vector<NodeId> before_it(tails.size());
    for (uint32_t n = 0; n < tails.size(); ++n) {
      const bool full = n + 1 > counts.most;
      const NodeId rest = full ? parts_.nothing() : tails[std::min(n + 1, top)];
      NodeId with = is_nothing(rest) ? rest : parts_.nodes.sequence(members[i].node, rest);
      if (n > 0 && !is_nothing(with)) with = before(comma, with);
      before_it[n] = members[i].required ? with : parts_.nodes.choice({with, tails[n]});
    }
    tails = std::move(before_it);
  }
  if (is_nothing(tails[0])) return tails[0];
  return before(s_.concat(s_.literal("{"), space_), tails[0]);
}

}  // namespace quire::grammar
