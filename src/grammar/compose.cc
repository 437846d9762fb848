#include "grammar/compose.h"

#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "json/parse.h"

namespace quire::grammar {
namespace {

using Kind = ConstraintSource::Kind;

constexpr int kDeepest = 64;  // parts within parts

class Composition {
 public:
  explicit Composition(const Limits& limits) : composer_(limits) {}
  GrammarPtr compile(const ConstraintSource& source) { return composer_.build(part(source, 0)); }

 private:
  Composer::Part part(const ConstraintSource& source, int depth) {
    if (depth > kDeepest) throw no_resource("a constraint has parts within parts, deeper than {}", kDeepest);
    if (source.label.empty()) return bare_part(source, depth);
    try {
      return bare_part(source, depth);
    } catch (const Error& e) {
      throw Error(e.kind(), fmt::format("{}: {}", source.label, e.what()));
    }
  }

  Composer::Part bare_part(const ConstraintSource& source, int depth) {
    switch (source.kind) {
      case Kind::kJsonSchema:
        return schema(source.text);
      case Kind::kJsonObject:
        return composer_.json_object();
      case Kind::kRegex:
        return composer_.regex(source.text);
      case Kind::kChoice:
        return composer_.one_of(source.choices);
      case Kind::kGrammar:
        return composer_.gbnf(source.text);
      case Kind::kText:
        return composer_.text(source.text);
      case Kind::kToken:
        return composer_.special(source.text);
      case Kind::kTextWithout:
        return composer_.text_without(source.choices, source.text);
      case Kind::kSequence:
        return composer_.sequence(parts(source, depth));
      case Kind::kOneOf:
        return composer_.choice(parts(source, depth));
      case Kind::kRepeat:
        return composer_.repeat(part(source.parts.at(0), depth + 1), source.least, source.most);
      case Kind::kReserve:
        for (const std::string& token : source.choices) composer_.reserve(token);
        return composer_.text({});
    }
    throw invalid("unknown kind of constraint");
  }

  std::vector<Composer::Part> parts(const ConstraintSource& source, int depth) {
    std::vector<Composer::Part> made;
    for (const ConstraintSource& inner : source.parts) made.push_back(part(inner, depth + 1));
    return made;
  }

  // Tools repeat schemas of arguments wherever one may be the first.
  Composer::Part schema(const std::string& text) {
    const auto known = schemas_.find(text);
    if (known != schemas_.end()) return known->second;
    const Composer::Part made = composer_.json_schema(parse_json(text, "JSON schema"));
    schemas_.emplace(text, made);
    return made;
  }

  Composer composer_;
  std::map<std::string, Composer::Part> schemas_;
};

}  // namespace

GrammarPtr compile(const ConstraintSource& source, const Limits& limits) { return Composition(limits).compile(source); }

}  // namespace quire::grammar
