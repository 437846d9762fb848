// Compiles sets of schemas (json_schema.h). Internal to json_*.cc.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/char_set.h"
#include "grammar/limits.h"
#include "grammar/parts.h"
#include "grammar/schema/json_numbers.h"
#include "grammar/schema/schema_document.h"

namespace quire::grammar {

class SchemaCompiler {
 public:
  SchemaCompiler(GrammarParts& parts, CharEncoder& encoder, const Json& schema, const Limits& limits, Texts texts);
  NodeId compile();

 private:
  // What a value must satisfy: a whole schema; its constraints without those that combine schemas; one of an array.
  enum class Kind : uint8_t { kWhole, kBase, kAnyOf, kOneOf };
  struct Element {
    Kind kind;
    const Json* json;
    auto operator<=>(const Element&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 misreads <=>
  };
  using Set = std::vector<Element>;  // in the order of the schema, which is that of properties
  using Bases = std::vector<const Json*>;
  struct Memo {
    uint32_t rule = 0;
    bool done = false;
  };
  // Types of values, as bits.
  enum Type : unsigned {
    kNull = 1,
    kBoolean = 2,
    kInteger = 4,
    kFractional = 8,
    kString = 16,
    kArray = 32,
    kObject = 64
  };

  // json_schema.cc: sets
  NodeId compile(const Set& set);
  NodeId compile_schema(const Json& schema) { return compile(Set{{Kind::kWhole, &schema}}); }
  bool expand(const Set& set, Set& to);  // false: no value satisfies it
  void expand_object(const Json& schema, Set& work, Set& to);
  void check_keywords(const Json& schema);
  NodeId build(const Set& set);
  NodeId build_one_of(const Set& rest, const Json& alternatives);
  NodeId build_bases(const Bases& bases);

  // json_derived.cc
  const Json& negation(const Json& schema);
  void negate_keyword(const Json& schema, const std::string& keyword, Json& any_of);
  const Json& dependency(const Json& schema, std::string_view keyword);
  const Json& conditional(const Json& schema);
  const Json& alternatives_of_values(const Json& schema, std::string_view keyword);
  const Json& exactly(const Json& value);
  // Properties that keywords evaluate where these conditions (schemas) hold.
  struct Evaluated {
    std::vector<Json> conditions = {};
    std::vector<std::string> names = {}, patterns = {};
    bool all = false;
    bool is_empty() const { return names.empty() && patterns.empty() && !all; }
  };
  static Evaluated both(const Evaluated& a, const Evaluated& b);
  std::vector<Evaluated> evaluated_by(const Json& schema, bool outermost, int depth);
  std::vector<Evaluated> evaluated_under(const Json& schema, int depth);
  std::vector<Evaluated> evaluated_by_alternatives(const Json& schema, const char* keyword, int depth);
  std::vector<Evaluated> evaluated_by_conditional(const Json& schema, int depth);
  void check_combinations(const Json& schema, size_t count);
  const Json& unevaluated(const Json& schema);

  // json_scalars.cc
  unsigned types_of(const Bases& bases);
  unsigned type_named(const Json& schema, const Json& name);
  RegexId scalars(const Bases& bases, unsigned types);
  RegexId numbers(const Bases& bases, unsigned types, bool& constrained);
  RegexId string_content(const Bases& bases, bool& constrained);
  uint32_t count_of(const Json& schema, const char* keyword, uint32_t otherwise);
  struct Counts {
    uint32_t least = 0, most = kUnbounded;
  };
  Counts counts_of(const Bases& bases, const char* least, const char* most);

  // json_containers.cc
  NodeId arrays(const Bases& bases);
  struct Member {
    NodeId node = 0;
    bool required = false;
    size_t chain = 0;
    size_t listed = 0;  // its place in `required`
  };
  NodeId objects(const Bases& bases);
  std::vector<Member> declared_members(const Bases& bases, const std::vector<std::string>& names, RegexId names_allowed,
                                       bool& impossible);
  NodeId other_members(const Bases& bases, const std::vector<std::string>& names, RegexId names_allowed);
  NodeId object_of(const std::vector<Member>& members, bool any_order, NodeId other, Counts counts);
  NodeId member(RegexId key, NodeId value);
  void note_impossible(const Bases& bases, const std::string& name);
  RegexId key_literal(std::string_view name);
  RegexId pattern_regex(const Json& schema, std::string_view keyword, std::string_view pattern);

  const Json* find(const Json& schema, std::string_view keyword);
  NodeId regex(RegexId regex) { return parts_.nodes.regex(s_.is_empty(regex) ? kNothing : regex); }
  bool is_nothing(NodeId node) const { return parts_.nodes.is_regex(node, kNothing); }

  GrammarParts& parts_;
  RegexStore& s_;
  CharEncoder& encoder_;
  const Limits& limits_;
  const Texts texts_;
  SchemaDocument document_;
  std::map<Set, Memo> memo_;
  std::map<std::string, RegexId, std::less<>> patterns_;
  std::vector<std::pair<Set, uint32_t>> later_;  // sets too deep for recursion, and their rules
  std::string why_nothing_;                      // the first part found that no value satisfies, for a message
  int depth_ = 0;
  RegexId space_, character_, text_;
  NodeId comma_;
};

}  // namespace quire::grammar
