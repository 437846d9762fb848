#include "grammar/schema/json_schema.h"

#include <algorithm>
#include <set>

#include "base/text/quote.h"
#include "grammar/schema/schema_compiler.h"

namespace quire::grammar {
namespace {

constexpr int kDeepestRecursion = 40;  // how deep compile() recurses; deeper sets wait

// Keywords that are not honoured. Those in neither table are annotations, as the standard has it for unknown ones.
constexpr const char* kRefused[] = {"unevaluatedItems", "$dynamicRef", "$recursiveRef", "minContains", "maxContains"};
// Keywords of build_bases.
constexpr const char* kConstraints[] = {"type",
                                        "enum",
                                        "const",
                                        "minimum",
                                        "maximum",
                                        "exclusiveMinimum",
                                        "exclusiveMaximum",
                                        "multipleOf",
                                        "minLength",
                                        "maxLength",
                                        "pattern",
                                        "format",
                                        "items",
                                        "prefixItems",
                                        "additionalItems",
                                        "minItems",
                                        "maxItems",
                                        "uniqueItems",
                                        "contains",
                                        "properties",
                                        "required",
                                        "additionalProperties",
                                        "patternProperties",
                                        "propertyNames",
                                        "minProperties",
                                        "maxProperties",
                                        kNotEnum,
                                        kNotPattern};

}  // namespace

SchemaCompiler::SchemaCompiler(GrammarParts& parts, CharEncoder& encoder, const Json& schema, const Limits& limits,
                               Texts texts)
    : parts_(parts),
      s_(parts.regexes),
      encoder_(encoder),
      limits_(limits),
      texts_(texts),
      document_(schema, limits),
      space_(s_.optional(s_.literal(" "))),
      character_(encoder.any(Encoding::kJson)),
      text_(s_.repeat(character_, 0, kUnbounded)),
      comma_(parts.nodes.layout(s_.concat(space_, s_.literal(",")), kEmpty, Layout::kWithin)) {
  (void)blanks(s_, 1);  // an automaton adds no sets of bytes
}

NodeId SchemaCompiler::compile() {
  const NodeId node = compile_schema(document_.root());
  while (!later_.empty()) {
    const auto [set, rule] = later_.back();
    later_.pop_back();
    const NodeId body = build(set);
    parts_.rules[rule] = body;
    memo_[set].done = true;
  }
  if (is_nothing(node) && !why_nothing_.empty()) throw invalid("{}", why_nothing_);
  return node;
}

const Json* SchemaCompiler::find(const Json& schema, std::string_view keyword) {
  return schema.contains(std::string(keyword)) ? &document_.at(schema, keyword) : nullptr;
}

NodeId SchemaCompiler::compile(const Set& set) {
  Set expanded;
  if (!expand(set, expanded)) return parts_.nothing();
  Set key = expanded;
  std::ranges::sort(key);
  s_.budget().spend(50);
  if (parts_.nodes.size() > limits_.nodes) s_.budget().exhausted();
  const auto [found, added] = memo_.try_emplace(std::move(key));
  Memo& memo = found->second;  // stays where it is
  if (added) {
    memo.rule = parts_.add_rule("");
    if (depth_ >= kDeepestRecursion) {
      later_.emplace_back(expanded, memo.rule);
    } else {
      ++depth_;
      const NodeId body = build(expanded);
      --depth_;
      parts_.rules[memo.rule] = body;
      memo.done = true;
    }
  }
  const NodeId body = parts_.rules[memo.rule];
  return memo.done && parts_.nodes[body].kind == NodeKind::kRegex ? body : parts_.nodes.rule(memo.rule);
}

// Follows $ref and allOf, and takes apart what combines schemas, until only kBase, kAnyOf and kOneOf are left.
bool SchemaCompiler::expand(const Set& set, Set& to) {
  Set work(set.rbegin(), set.rend());  // from the back
  std::set<Element> seen;
  while (!work.empty()) {
    const Element element = work.back();
    work.pop_back();
    if (!seen.insert(element).second) continue;
    if (seen.size() > 2000) s_.budget().exhausted();
    s_.budget().spend(5);
    const Json& json = *element.json;
    if (element.kind != Kind::kWhole) {
      to.push_back(element);
    } else if (json.is_boolean()) {
      if (!json.get<bool>()) return false;
    } else if (json.is_object()) {
      Set more;
      expand_object(json, more, to);
      work.insert(work.end(), more.rbegin(), more.rend());
    } else {
      throw document_.invalid_at(json, "schema", "expected an object or a boolean, found {}", describe(json));
    }
  }
  // A schema reached twice counts once.
  Set unique;
  for (const Element& element : to) {
    if (std::ranges::find(unique, element) == unique.end()) unique.push_back(element);
  }
  to = std::move(unique);
  return true;
}

void SchemaCompiler::expand_object(const Json& schema, Set& work, Set& to) {
  const auto whole = [&](const Json& part) { work.push_back({Kind::kWhole, &part}); };
  const auto array = [&](const char* keyword) -> const Json* {
    const Json* value = find(schema, keyword);
    if (value != nullptr && (!value->is_array() || value->empty()))
      throw document_.invalid_at(schema, keyword, "expected a non-empty array, found {}", describe(*value));
    return value;
  };
  if (const Json* index = find(schema, kSame)) whole(document_.same_of(*index));
  const Json* ref = find(schema, "$ref");
  if (ref != nullptr) {
    const Json& target = document_.resolve(schema, *ref);
    if (document_.ref_alone()) return whole(target);
    check_keywords(schema);
    whole(target);
  } else {
    check_keywords(schema);
  }
  // Arrays and objects among the values become schemas of their own.
  bool only_scalars = true;
  for (const char* keyword : {"const", "enum"}) {
    const Json* values = find(schema, keyword);
    if (values == nullptr) continue;
    const bool is_enum = std::string_view(keyword) == "enum";
    if (is_enum && !values->is_array())
      throw document_.invalid_at(schema, keyword, "expected an array, found {}", describe(*values));
    if (is_enum && values->empty())
      throw document_.invalid_at(schema, keyword, "expected at least one value, found []");
    if (is_enum ? std::ranges::any_of(*values, [](const Json& v) { return v.is_structured(); })
                : values->is_structured()) {
      only_scalars = false;
      whole(alternatives_of_values(schema, keyword));
    }
  }
  if (!only_scalars) {  // the other keywords still hold
    const Json& rest = document_.derived(schema, Derivation::kOnlyText, [&] {
      Json made = Json::object();
      for (const char* keyword : kConstraints) {
        if (std::string_view(keyword) != "const" && std::string_view(keyword) != "enum" && schema.contains(keyword))
          made[keyword] = schema[keyword];
      }
      return made;
    });
    if (!rest.empty()) to.push_back({Kind::kBase, &rest});
  } else if (std::ranges::any_of(kConstraints, [&](const char* keyword) { return schema.contains(keyword); })) {
    to.push_back({Kind::kBase, &schema});
  }
  if (const Json* all = array("allOf")) {
    for (size_t i = 0; i < all->size(); ++i) whole(document_.at(*all, i));
  }
  if (const Json* any = array("anyOf")) to.push_back({Kind::kAnyOf, any});
  if (const Json* one = array("oneOf")) to.push_back({Kind::kOneOf, one});
  if (const Json* inner = find(schema, "not")) whole(negation(*inner));
  if (find(schema, "if") != nullptr && (find(schema, "then") != nullptr || find(schema, "else") != nullptr))
    whole(conditional(schema));
  for (const char* keyword : {"dependencies", "dependentRequired", "dependentSchemas"}) {
    if (find(schema, keyword) != nullptr) whole(dependency(schema, keyword));
  }
  if (const Json* others = find(schema, "unevaluatedProperties"); others != nullptr && *others != true)
    whole(unevaluated(schema));
}

void SchemaCompiler::check_keywords(const Json& schema) {
  for (const char* keyword : kRefused) {
    const Json* value = find(schema, keyword);
    if (value == nullptr || (value->is_boolean() && value->get<bool>())) continue;
    if (std::string_view(keyword).ends_with("Contains") && find(schema, "contains") == nullptr) continue;
    throw document_.unsupported_at(schema, keyword, "this keyword is not supported");
  }
}

NodeId SchemaCompiler::build(const Set& set) {
  const auto group = std::ranges::find_if(set, [](const Element& e) { return e.kind != Kind::kBase; });
  if (group == set.end()) {
    Bases bases;
    for (const Element& element : set) bases.push_back(element.json);
    return build_bases(bases);
  }
  Set rest;
  for (const Element& element : set) {
    if (element != *group) rest.push_back(element);
  }
  if (group->kind == Kind::kOneOf) return build_one_of(rest, *group->json);
  std::vector<NodeId> made;
  for (size_t i = 0; i < group->json->size(); ++i) {
    Set alternative = rest;
    alternative.push_back({Kind::kWhole, &document_.at(*group->json, i)});
    made.push_back(compile(alternative));
  }
  return parts_.fused_choice(std::move(made));
}

// Exactly one of them: an alternative, and not those that could hold at the same time.
NodeId SchemaCompiler::build_one_of(const Set& rest, const Json& alternatives) {
  const auto with = [](Set set, const Json& schema) {
    set.push_back({Kind::kWhole, &schema});
    return set;
  };
  const size_t count = alternatives.size();
  std::vector<const Json*> schemas;
  std::vector<bool> possible;
  for (size_t i = 0; i < count; ++i) {
    schemas.push_back(&document_.at(alternatives, i));
    possible.push_back(count == 1 || !is_nothing(compile(with(rest, *schemas[i]))));
  }
  std::vector<Set> sets;
  for (size_t i = 0; i < count; ++i) sets.push_back(with(rest, *schemas[i]));
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = i + 1; j < count; ++j) {
      if (!possible[i] || !possible[j] || is_nothing(compile(with(with(rest, *schemas[i]), *schemas[j])))) continue;
      const auto exclude = [&](size_t from, size_t other) {
        try {
          sets[from].push_back({Kind::kWhole, &negation(*schemas[other])});
        } catch (const Error& error) {
          throw document_.unsupported_at(alternatives, "oneOf", "alternatives {} and {} may hold at once ({})", i, j,
                                         error.what());
        }
      };
      exclude(i, j);
      exclude(j, i);
    }
  }
  std::vector<NodeId> made;
  for (size_t i = 0; i < count; ++i) {
    if (possible[i]) made.push_back(compile(sets[i]));
  }
  return parts_.fused_choice(std::move(made));
}

NodeId SchemaCompiler::build_bases(const Bases& bases) {
  const unsigned types = types_of(bases);
  std::vector<NodeId> made{regex(scalars(bases, types))};
  const bool structured =
      std::ranges::none_of(bases, [](const Json* base) { return base->contains("enum") || base->contains("const"); });
  if (structured && (types & kArray) != 0) made.push_back(arrays(bases));
  if (structured && (types & kObject) != 0) made.push_back(objects(bases));
  return parts_.nodes.choice(std::move(made));
}

NodeId add_json_schema(GrammarParts& parts, CharEncoder& encoder, const Json& schema, const Limits& limits,
                       Texts texts) {
  return SchemaCompiler(parts, encoder, schema, limits, texts).compile();
}

NodeId add_json_object(GrammarParts& parts, CharEncoder& encoder, const Limits& limits) {
  const Json schema = {{"type", "object"}};
  return SchemaCompiler(parts, encoder, schema, limits, Texts::kToWrite).compile();
}

}  // namespace quire::grammar
