#include "parsers/answer_constraint.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "parsers/call_arguments.h"
#include "parsers/constraint_parts.h"

namespace quire {
namespace {

using Kind = ConstraintSource::Kind;
using Parts = std::vector<ConstraintSource>;

// Some models put line ends between a thought and the answer.
constexpr std::string_view kAfterThought = R"([ \n]{0,4})";

class Composition {
 public:
  Composition(const AnswerFormat& format, const AnswerOptions& options, const AnswerRules& rules)
      : format_(format), options_(options), rules_(rules), marks_(format.tokens) {}

  ConstraintSource answer() const {
    ConstraintSource whole = harmony() ? messages() : sequence({thought(), body()});
    if (!format_.tokens.empty()) {
      whole.parts.insert(whole.parts.begin(),
                         {.kind = Kind::kReserve, .choices = {format_.tokens.begin(), format_.tokens.end()}});
    }
    return whole;
  }

 private:
  bool harmony() const { return format_.reasoning && format_.reasoning->harmony; }

  // ---- thoughts ----

  ConstraintSource thought() const {
    const ReasoningFamily* family = format_.reasoning;
    const bool inside = options_.inside_thought || (format_.starts_inside && !options_.continues);
    if (!family || !rules_.may_think || (options_.continues && !inside)) return empty();
    Parts parts;
    if (!inside) append(parts, marks_.split(family->open));
    parts.push_back(marks_.text_without({family->close}));
    append(parts, marks_.split(family->close));
    parts.push_back({.kind = Kind::kRegex, .text = std::string(kAfterThought)});
    return inside ? sequence(std::move(parts)) : optional(sequence(std::move(parts)));
  }

  // Messages in channels: thoughts and remarks, then the answer or a call.
  ConstraintSource messages() const {
    if (options_.continues) return sequence({text()});
    const auto message = [&](const char* channel, ConstraintSource content) {
      Parts parts = marks_.split("<|channel|>" + std::string(channel) + "<|message|>");
      parts.push_back(std::move(content));
      return sequence(std::move(parts));
    };
    Parts last;
    if (rules_.calls != AnswerRules::Calls::kNever) last.push_back(calls());
    if (rules_.calls != AnswerRules::Calls::kMust) last.push_back(message("final", text()));
    Parts before;
    for (const char* channel : {"analysis", "commentary"}) {
      if (rules_.text && std::string_view(channel) == "commentary") continue;  // it would be part of that text
      ConstraintSource said = message(channel, any_text());
      append(said.parts, marks_.split("<|end|><|start|>assistant"));
      before.push_back(std::move(said));
    }
    return sequence({repeat(one_of(std::move(before)), 0, ConstraintSource::kUnbounded), one_of(std::move(last))});
  }

  // ---- text and calls ----

  ConstraintSource text() const { return rules_.text ? *rules_.text : any_text(); }
  ConstraintSource any_text() const { return {.kind = Kind::kTextWithout}; }

  // Whether the parser sees a call wherever one is written, not only where an answer begins.
  bool calls_have_marks() const {
    const CallForm& form = *format_.form;
    const std::string beginning = std::string(form.begin) + std::string(form.before_name);
    return std::ranges::any_of(format_.tools->syntax.opens,
                               [&](std::string_view open) { return beginning.starts_with(open); });
  }

  ConstraintSource body() const {
    if (rules_.calls == AnswerRules::Calls::kNever) return text();
    if (rules_.calls == AnswerRules::Calls::kMust) return calls();
    if (rules_.text) return one_of({calls(), text()});
    const CallSyntax& syntax = format_.tools->syntax;
    ConstraintSource before = marks_.text_without(syntax.opens);
    if (syntax.bare && !options_.continues) before.text = syntax.shape == CallShape::kPython ? "[" : "[{";
    if (calls_have_marks()) return sequence({std::move(before), optional(calls())});
    return options_.continues ? before : one_of({calls(), std::move(before)});
  }

  ConstraintSource calls() const {
    const CallForm& form = *format_.form;
    if (options_.continues && !calls_have_marks()) {
      throw unsupported("a call of this model's syntax ({}) can't continue a text", format_.tools->name);
    }
    Parts one;
    for (const CallableTool& tool : rules_.tools) {
      one.push_back(sequence({{.kind = Kind::kText, .text = tool.name},
                              sequence(marks_.split(form.before_arguments)),
                              call_arguments(format_, tool.parameters, tool.label)}));
    }
    Parts call = marks_.split(form.before_name);
    call.push_back(one_of(std::move(one)));
    append(call, marks_.split(form.after_arguments));
    Parts parts = marks_.split(form.begin);
    parts.push_back(sequence(call));
    if (rules_.several_calls && !form.single) {
      Parts next = marks_.split(form.separator);
      append(next, std::move(call));
      parts.push_back(repeat(sequence(std::move(next)), 0, kMaxCalls - 1));
    }
    append(parts, marks_.split(form.end));
    return sequence(std::move(parts));
  }

  const AnswerFormat& format_;
  const AnswerOptions& options_;
  const AnswerRules& rules_;
  const MarkTexts marks_;
};

}  // namespace

ConstraintSource constrain_answer(const AnswerFormat& format, const AnswerOptions& options, const AnswerRules& rules) {
  return Composition(format, options, rules).answer();
}

}  // namespace quire
