// The functions that every template can call.
#include "jinja/builtins/params.h"
#include "jinja/builtins/time.h"
#include "jinja/eval.h"
#include "jinja/template_error.h"
#include "jinja/value/print.h"

namespace quire::jinja {
namespace {

constexpr Int kMaxRange = 100'000;  // as in jinja2's sandbox

Value range(Evaluator& e, const Args& args) {
  const Params p(args, "range", {"start", "stop", "step"}, 1);
  const Int start = p[1] == nullptr ? 0 : p.integer(0, 0);
  const Int stop = p[1] == nullptr ? p.integer(0, 0) : p.integer(1, 0);
  const Int step = p.integer(2, 1);
  if (step == 0) throw invalid("range() arg 3 must not be zero");
  const long double span =
      (static_cast<long double>(stop) - static_cast<long double>(start)) / static_cast<long double>(step);
  if (span > static_cast<long double>(kMaxRange))
    throw invalid("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange);
  const size_t count = span <= 0 ? 0 : static_cast<size_t>(span) + 1;
  const Charge charge(e.meter, count * sizeof(Value));
  Values items;
  items.reserve(count);
  for (Int i = start; step > 0 ? i < stop : i > stop; i += step) {
    items.push_back(i);
    if (items.size() > static_cast<size_t>(kMaxRange)) throw invalid("Range too big.");
    Int next = 0;
    if (__builtin_add_overflow(i, step, &next)) break;
  }
  return make_sequence(e.meter, std::move(items), SequenceKind::kRange);
}

// The items of dict(mapping or pairs, name=value…).
std::vector<std::pair<Value, Value>> entries(Evaluator& e, const Args& args, std::string_view function) {
  if (args.positional.size() > 1) throw invalid("{}() takes at most 1 positional argument", function);
  std::vector<std::pair<Value, Value>> out;
  if (!args.positional.empty()) {
    if (const Dict* d = args.positional[0].dict()) {
      out = d->items;
    } else {
      for (const Value& pair : iterate(e.meter, args.positional[0])) {
        const Values both = iterate(e.meter, pair);
        if (both.size() != 2) throw invalid("{}() needs pairs, got {} values", function, both.size());
        out.emplace_back(both[0], both[1]);
      }
    }
  }
  for (const auto& [name, value] : args.named) out.emplace_back(make_text(e.meter, name), value);
  return out;
}

Value dict(Evaluator& e, const Args& args) { return make_dict(e.meter, entries(e, args, "dict")); }

Value make_ns(Evaluator& e, const Args& args) {
  const Value unique = make_dict(e.meter, entries(e, args, "namespace"));
  std::vector<std::pair<std::string, Value>> attributes;
  for (const auto& [key, value] : unique.dict()->items) attributes.emplace_back(text_of(e.meter, key), value);
  return e.make_namespace(std::move(attributes));
}

Value raise_exception(Evaluator& e, const Args& args) {
  throw TemplateError(text_of(e.meter, *Params(args, "raise_exception", {"message"}, 1)[0]));
}

Value strftime_now(Evaluator& e, const Args& args) {
  return make_text(e.meter, format_time(e.now, Params(args, "strftime_now", {"format"}, 1).text(0)));
}

}  // namespace

void define_globals(Evaluator& evaluator) {
  struct Function {
    const char* name;
    Value (*call)(Evaluator&, const Args&);
  };
  for (const auto& [name, call] :
       {Function{"range", range}, Function{"dict", dict}, Function{"namespace", make_ns},
        Function{"raise_exception", raise_exception}, Function{"strftime_now", strftime_now}})
    evaluator.define(name, make_callable(evaluator.meter, name, call));
}

}  // namespace quire::jinja
