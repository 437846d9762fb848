// Arrays and objects: sets of schemas to grammars.
#include <algorithm>
#include <map>
#include <unordered_set>

#include "base/text/quote.h"
#include "grammar/schema/schema_compiler.h"

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
  const NodeId open = parts_.nodes.layout(s_.literal("["), kEmpty, Layout::kOpens);
  const NodeId close = parts_.nodes.layout(kEmpty, s_.literal("]"), Layout::kCloses), comma = comma_;
  const NodeId empty = regex(s_.concat({s_.literal("["), space_, s_.literal("]")}));
  if (counts.least > counts.most) return parts_.nothing();
  if (contains != nullptr) {
    if (longest > 0 || counts.least > 1 || counts.most != kUnbounded)
      throw document_.unsupported_at(*contains, "contains",
                                     "next to minItems, maxItems or prefixItems is not supported");
    Set wanted = rest;
    wanted.push_back({Kind::kWhole, contains});
    const NodeId item = compile(rest), found = compile(wanted);
    const NodeId before_it = parts_.nodes.repeat(parts_.nodes.sequence(item, comma), 0, kUnbounded);
    const NodeId after_it = parts_.nodes.repeat(parts_.nodes.sequence(comma, item), 0, kUnbounded);
    return parts_.nodes.sequence(
        open, parts_.nodes.sequence(before_it, parts_.nodes.sequence(found, parts_.nodes.sequence(after_it, close))));
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
      const NodeId others = parts_.nodes.repeat(parts_.nodes.sequence(comma, item), least > 0 ? least - 1 : 0,
                                                most == kUnbounded ? most : most - 1);
      const NodeId some =
          parts_.nodes.sequence(open, parts_.nodes.sequence(item, parts_.nodes.sequence(others, close)));
      return parts_.nodes.choice({counts.least == 0 ? empty : parts_.nothing(), is_nothing(item) ? item : some});
    }
    more = parts_.nodes.sequence(
        parts_.nodes.repeat(is_nothing(item) ? item : parts_.nodes.sequence(comma, item), least, most), close);
  } else {
    more = close;
  }
  for (uint32_t i = fixed; i-- > 0;) {
    const NodeId item = compile(prefix[i]);
    const NodeId rest_of = is_nothing(item) ? item : parts_.nodes.sequence(item, more);
    const bool may_end = i >= counts.least;
    if (i == 0) {
      return parts_.nodes.choice(
          {may_end ? empty : parts_.nothing(), is_nothing(rest_of) ? rest_of : parts_.nodes.sequence(open, rest_of)});
    }
    more = parts_.nodes.choice(
        {may_end ? close : parts_.nothing(), is_nothing(rest_of) ? rest_of : parts_.nodes.sequence(comma, rest_of)});
  }
  return more;
}

RegexId SchemaCompiler::key_literal(std::string_view name) {
  const RegexId quotes = s_.literal("\"");
  return s_.concat({quotes, encoder_.literal(name, Encoding::kJson), quotes});
}

NodeId SchemaCompiler::member(RegexId key, NodeId value) {
  if (is_nothing(value) || s_.is_empty(key)) return parts_.nothing();
  return parts_.nodes.sequence(parts_.nodes.regex(s_.concat({key, space_, s_.literal(":"), space_})), value);
}

NodeId SchemaCompiler::objects(const Bases& bases) {
  std::vector<std::string> names;
  std::vector<size_t> chains;  // names of one chain keep their order
  size_t next_chain = 0;
  std::vector<std::string> listed_names;  // the names in `required`
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
      for (const auto& [name, schema] : properties->items()) add_name(name);
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
  // In any order, as models write them in the one that they were trained on. Of too many, in the order of the schema, or as
  // authors list them in `required`: its names first, then the rest.
  constexpr size_t kMostInAnyOrder = 100;
  if (members.size() <= kMostInAnyOrder) return object_of(members, true, other, counts);
  std::vector<Member> listed = members;
  std::ranges::stable_sort(listed, {}, [](const Member& m) { return m.listed; });
  const bool same = std::ranges::equal(listed, members, {}, &Member::node, &Member::node);
  const NodeId node = object_of(members, false, other, counts);
  for (Member& m : listed) m.chain = 0;
  return same ? node : parts_.nodes.choice({node, object_of(listed, false, other, counts)});
}

// Why an object is impossible, for the message if the whole schema is.
void SchemaCompiler::note_impossible(const Bases& bases, const std::string& name) {
  if (!why_nothing_.empty()) return;
  std::string why = "no value of it is allowed";
  for (const Json* base : bases) {
    const Json* others = find(*base, "additionalProperties");
    const Json* properties = find(*base, "properties");
    if (others != nullptr && *others == false && (properties == nullptr || !properties->contains(name)))
      why = fmt::format("additionalProperties at {} is false, and properties there does not name it",
                        document_.where(*base));
  }
  for (const Json* base : bases) {
    const Json* required = find(*base, "required");
    if (required != nullptr && std::ranges::find(*required, Json(name)) != required->end())
      why_nothing_ = document_.invalid_at(*base, "required", "{} is required, but {}", quote(name), why).what();
  }
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
        note_impossible(bases, names[i]);
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

NodeId SchemaCompiler::object_of(const std::vector<Member>& members, bool any_order, NodeId other, Counts counts) {
  constexpr size_t kMostChains = 100;
  const auto required = static_cast<uint32_t>(std::ranges::count_if(members, &Member::required));
  const bool closed = is_nothing(other);
  if (counts.least <= required) counts.least = 0;
  if (closed && counts.most >= members.size()) counts.most = kUnbounded;
  if (counts.least > counts.most || required > counts.most || (closed && counts.least > members.size()))
    return parts_.nothing();
  const NodeId empty = required > 0 || counts.least > 0 ? parts_.nothing()
                                                        : regex(s_.concat({s_.literal("{"), space_, s_.literal("}")}));
  if ((closed && members.empty()) || counts.most == 0) return empty;
  std::map<size_t, std::vector<ObjectShape::Member>> chains;
  for (size_t i = 0; i < members.size(); ++i)
    chains[any_order ? i : members[i].chain].push_back({members[i].node, members[i].required});
  ObjectShape shape{.other = other,
                    .least = counts.least,
                    .most = counts.most,
                    .comma = comma_,
                    .close = parts_.nodes.layout(kEmpty, s_.literal("}"), Layout::kCloses)};
  for (auto& [number, chain] : chains) {
    if (shape.chains.empty() || chains.size() <= kMostChains) {
      shape.chains.push_back(std::move(chain));
    } else {  // too many orders: one chain
      shape.chains[0].insert(shape.chains[0].end(), chain.begin(), chain.end());
    }
  }
  s_.budget().spend(members.size());
  const NodeId open = parts_.nodes.layout(s_.literal("{"), kEmpty, Layout::kOpens);
  return parts_.nodes.choice({empty, parts_.nodes.sequence(open, parts_.nodes.members(std::move(shape)))});
}

}  // namespace quire::grammar
