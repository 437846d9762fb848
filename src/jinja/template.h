// A Jinja template: parsed once, rendered with variables, a clock and bounds on steps, depth, memory and output.
//
//   const auto greeting = jinja::Template::parse("Hello {{ name }}", "greeting");
//   std::string text = greeting.render({{"name", &json}}, jinja::local_now());
#pragma once

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "jinja/builtins/time.h"
#include "jinja/template_error.h"

namespace quire::jinja {

struct Program;

struct Variable {
  std::string name;
  const nlohmann::ordered_json* value;
};

// Immutable: render may be called by any number of threads. Copies share the program.
class Template {
 public:
  // `name` identifies the template in errors. Throws Error "NAME:LINE: what" for a syntax error.
  static Template parse(std::string source, std::string name);

  // The result as UTF-8 text; of equal variables the last one wins. `now` is what strftime_now returns.
  // Throws TemplateError if the template calls raise_exception, otherwise Error "NAME:LINE: what".
  std::string render(const std::vector<Variable>& variables, std::chrono::local_seconds now) const;

  const std::string& source() const;

 private:
  explicit Template(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
  std::shared_ptr<const Program> program_;
};

}  // namespace quire::jinja
