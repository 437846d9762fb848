// A schema document: where each schema in it stands, what its references mean, and schemas derived from it. Internal to
// json_schema.cc.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "grammar/limits.h"
#include "json/parse.h"

namespace quire::grammar {

// Keywords of derived schemas; no JSON text can spell them. kSame: an index of document.same(), whose schema holds here.
inline constexpr const char* kSame = "\xFF same";
inline constexpr const char* kNotEnum = "\xFF not enum";
inline constexpr const char* kNotPattern = "\xFF not pattern";
inline constexpr const char* kFraction = "\xFF fraction";  // a type: numbers that are not integers

// What a schema is derived for.
enum class Derivation : uint8_t {
  kNegation,
  kExactly,
  kConditional,
  kOnlyText,
  kDependency,
  kAlternatives,
  kUnevaluated
};

class SchemaDocument {
 public:
  // The schema must outlive it. Checks size and depth.
  SchemaDocument(const Json& root, const Limits& limits);

  const Json& root() const { return root_; }
  // Whether $ref hides its neighbours (until draft 7).
  bool ref_alone() const { return ref_alone_; }

  // The JSON pointer of a schema; of a derived one, that of its origin.
  std::string where(const Json& schema) const;
  // A part of a schema, remembered with its place.
  const Json& at(const Json& schema, std::string_view key);
  const Json& at(const Json& schema, size_t index);
  // A derived schema: made once for each origin and purpose.
  template <class Make>
  const Json& derived(const Json& origin, Derivation purpose, Make&& make) {
    if (const auto found = derived_.find({&origin, purpose}); found != derived_.end()) return *found->second;
    made_.push_back(make());
    const Json* made = &made_.back();
    places_[made] = {&origin, ""};
    derived_.emplace(std::pair(&origin, purpose), made);
    return *made;
  }
  // {kSame: …}: refers to a schema from a derived one.
  Json same(const Json& schema);
  const Json& same_of(const Json& index) const { return *same_[index.get<size_t>()]; }

  const Json& resolve(const Json& schema, const Json& ref);

  template <class... A>
  Error invalid_at(const Json& schema, std::string_view keyword, fmt::format_string<A...> f, A&&... a) const {
    return {ErrorKind::kInvalid, message(schema, keyword, fmt::format(f, std::forward<A>(a)...))};
  }
  template <class... A>
  Error unsupported_at(const Json& schema, std::string_view keyword, fmt::format_string<A...> f, A&&... a) const {
    return {ErrorKind::kUnsupported, message(schema, keyword, fmt::format(f, std::forward<A>(a)...))};
  }

 private:
  struct Place {
    const Json* parent;  // null: the root
    std::string key;     // empty: derived from the parent
  };
  std::string message(const Json& schema, std::string_view keyword, const std::string& what) const;
  void measure(const Json& value, int depth, size_t& bytes, bool schema_position);

  const Json& root_;
  const Limits& limits_;
  bool ref_alone_ = false;
  bool has_inner_ids_ = false;
  std::unordered_map<const Json*, Place> places_;
  std::deque<Json> made_;
  std::map<std::pair<const Json*, Derivation>, const Json*> derived_;
  std::vector<const Json*> same_;
};

}  // namespace quire::grammar
