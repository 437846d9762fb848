#include "jinja/template.h"

#include "jinja/eval.h"
#include "jinja/value/print.h"

namespace quire::jinja {
namespace {

using nlohmann::ordered_json;

// About how many bytes a value has as text: the meter's bounds grow with the input.
size_t text_size(const ordered_json& json, int depth = 0) {
  if (depth > kMaxValueDepth) throw invalid("the input is nested more than {} deep", kMaxValueDepth);
  size_t size = 16;
  if (json.is_string()) size += json.get_ref<const std::string&>().size();
  if (json.is_array() || json.is_object())
    for (const auto& item : json) size += text_size(item, depth + 1);
  return size;
}

}  // namespace

Template Template::parse(std::string source, std::string name) {
  return Template(parse_program(std::move(source), std::move(name)));
}

const std::string& Template::source() const { return program_->source; }

std::string Template::render(const std::vector<Variable>& variables, std::chrono::local_seconds now) const {
  size_t size = 0;
  for (const Variable& v : variables) size += text_size(*v.value);
  Meter meter(size);
  Evaluator evaluator(*program_, meter, now);
  try {
    for (const Variable& v : variables) evaluator.define(v.name, from_json(meter, *v.value));
    return evaluator.run();
  } catch (const TemplateError&) {
    throw;
  } catch (const Error& e) {
    throw Error(e.kind(), fmt::format("{}:{}: {}", program_->name, evaluator.line(), e.what()));
  }
}

}  // namespace quire::jinja
