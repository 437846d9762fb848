// The evaluator's access to what a value contains: a.b and a[b].
#include "jinja/eval.h"
#include "jinja/value/print.h"

namespace quire::jinja {

void fail_undefined(const Value& v) {
  const auto& missing = v.as<Ref<const Missing>>();
  throw invalid("{}", missing == nullptr ? "undefined value" : missing->message);
}

Value Evaluator::method_or_undefined(const Value& of, std::string_view name) {
  if (std::optional<Value> method = find_method(*this, of, name)) return *method;
  return make_undefined(fmt::format("'{}' has no attribute '{}'", owner_name(of), name));
}

Value Evaluator::attribute(const Value& of, const Value& name_value) {
  const std::string& name = name_value.text()->bytes;
  if (of.is_undefined()) fail_undefined(of);
  if (const Dict* d = of.dict()) {  // a method takes precedence over a key, as in Python
    if (std::optional<Value> method = find_method(*this, of, name)) return *method;
    const Value* found = d->find(name);
    return found != nullptr ? *found : make_undefined(fmt::format("'dict object' has no attribute '{}'", name));
  }
  return method_or_undefined(of, name);
}

Value Evaluator::subscript(const Value& of, const Value& key) {
  if (of.is_undefined()) fail_undefined(of);
  if (key.text() != nullptr) meter.step(key.text()->bytes.size() / 16);
  if (const Dict* d = of.dict()) {
    const bool hashable = key.sequence() == nullptr || key.sequence()->kind == SequenceKind::kTuple;
    const Value* found = hashable && key.dict() == nullptr ? d->find(key) : nullptr;
    if (found != nullptr) return *found;
  } else if (key.is_int()) {
    const bool indexable =
        of.text() != nullptr || (of.sequence() != nullptr && of.sequence()->kind <= SequenceKind::kRange);
    const Int length = indexable ? length_of(of) : 0;
    const Int index = key.to_int() < 0 ? key.to_int() + length : key.to_int();
    if (of.text() != nullptr) meter.step(of.text()->bytes.size() / 16);
    if (index >= 0 && index < length) {
      if (of.sequence() != nullptr) return of.sequence()->items[static_cast<size_t>(index)];
      const Value at = index;
      const Value end = index + 1;
      return slice(*this, of, &at, &end, nullptr);
    }
  }
  if (key.text() != nullptr) return method_or_undefined(of, key.text()->bytes);
  std::string shown;
  print_repr(meter, key, shown);
  return make_undefined(fmt::format("'{}' has no element {}", owner_name(of), shown));
}

}  // namespace quire::jinja
