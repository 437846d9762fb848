// What all components of a tokenizer.json share: a type, and sequences of components.
#pragma once

#include "base/error.h"
#include "json/field.h"

namespace quire {

inline const std::string& component_type(const JsonField& component) { return component.at("type").string(); }

// Calls read(component) for a component, or for each component of a Sequence, whose list is called `list`.
template <class Fn>
void for_each_component(const JsonField& field, const char* list, Fn read, int depth = 0) {
  constexpr int kDeepest = 16;  // nested sequences
  if (component_type(field) != "Sequence") return read(field);
  if (depth == kDeepest) throw unsupported("{}: sequences are nested deeper than {}", field.where(), kDeepest);
  const JsonField items = field.at(list).array();
  for (size_t i = 0; i < items.size(); ++i) for_each_component(items.at(i), list, read, depth + 1);
}

}  // namespace quire
