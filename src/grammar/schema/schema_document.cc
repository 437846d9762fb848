#include "grammar/schema/schema_document.h"

#include <algorithm>
#include <charconv>

#include "base/text/quote.h"

namespace quire::grammar {
namespace {

std::string escaped(std::string_view key) {
  std::string made;
  for (const char c : key) {
    if (c == '~') {
      made += "~0";
    } else if (c == '/') {
      made += "~1";
    } else {
      made += c;
    }
  }
  return made;
}

// "a~1b" and "a%2Fb" of a reference.
std::string unescaped(std::string_view key) {
  std::string plain;
  for (size_t i = 0; i < key.size(); ++i) {
    int byte = 0;
    if (key[i] == '%' && i + 2 < key.size() &&
        std::from_chars(key.data() + i + 1, key.data() + i + 3, byte, 16).ptr == key.data() + i + 3) {
      plain += static_cast<char>(byte);
      i += 2;
    } else {
      plain += key[i];
    }
  }
  std::string made;
  for (size_t i = 0; i < plain.size(); ++i) {
    if (plain[i] == '~' && i + 1 < plain.size() && (plain[i + 1] == '0' || plain[i + 1] == '1')) {
      made += plain[++i] == '0' ? '~' : '/';
    } else {
      made += plain[i];
    }
  }
  return made;
}

}  // namespace

SchemaDocument::SchemaDocument(const Json& root, const Limits& limits) : root_(root), limits_(limits) {
  places_[&root] = {nullptr, ""};
  size_t bytes = 0;
  measure(root, 0, bytes, true);
  if (!root.is_object()) return;
  std::string dialect;
  if (const auto found = root.find("$schema"); found != root.end() && found->is_string()) {
    dialect = found->get<std::string>();
    if (!dialect.empty() && dialect.find("json-schema.org/") == dialect.npos)
      throw unsupported_at(root, "$schema", "the dialect {} is not supported; use draft 7 or 2020-12", quote(dialect));
  }
  const bool modern = dialect.find("2019-09") != dialect.npos || dialect.find("2020-12") != dialect.npos;
  const bool named = dialect.find("/draft-0") != dialect.npos;
  ref_alone_ = named || (!modern && root.contains("definitions") && !root.contains("$defs"));
}

void SchemaDocument::measure(const Json& value, int depth, size_t& bytes, bool is_root) {
  if (depth > limits_.depth) throw no_resource("the schema is nested deeper than {} levels", limits_.depth);
  bytes += value.is_string() ? value.get_ref<const std::string&>().size() + 2 : 4;
  if (bytes > limits_.bytes) throw no_resource("the schema is larger than {} bytes", limits_.bytes);
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      bytes += key.size() + 3;
      if (key == "$id" && !is_root && member.is_string() && !member.get_ref<const std::string&>().starts_with('#'))
        has_inner_ids_ = true;
      measure(member, depth + 1, bytes, false);
    }
  } else if (value.is_array()) {
    for (const Json& element : value) measure(element, depth + 1, bytes, false);
  }
}

std::string SchemaDocument::where(const Json& schema) const {
  std::vector<std::string_view> keys;
  for (const Json* at = &schema; at != nullptr;) {
    const auto found = places_.find(at);
    if (found == places_.end()) break;
    if (found->second.parent != nullptr && !found->second.key.empty()) keys.push_back(found->second.key);
    at = found->second.parent;
  }
  std::string pointer = "#";
  for (size_t i = keys.size(); i-- > 0;) pointer.append("/").append(keys[i]);
  return pointer;
}

std::string SchemaDocument::message(const Json& schema, std::string_view keyword, const std::string& what) const {
  return fmt::format("schema: {} at {}: {}", keyword, where(schema), what);
}

const Json& SchemaDocument::at(const Json& schema, std::string_view key) {
  const Json& part = schema.at(std::string(key));
  places_.try_emplace(&part, Place{&schema, escaped(key)});
  return part;
}

const Json& SchemaDocument::at(const Json& schema, size_t index) {
  const Json& part = schema.at(index);
  places_.try_emplace(&part, Place{&schema, std::to_string(index)});
  return part;
}

Json SchemaDocument::same(const Json& schema) {
  const auto found = std::ranges::find(same_, &schema);
  const auto index = static_cast<size_t>(found - same_.begin());
  if (found == same_.end()) same_.push_back(&schema);
  return Json{{kSame, index}};
}

const Json& SchemaDocument::resolve(const Json& schema, const Json& ref) {
  if (!ref.is_string()) throw invalid_at(schema, "$ref", "expected a string");
  std::string_view target = ref.get_ref<const std::string&>();
  if (const auto id = root_.find("$id"); id != root_.end() && id->is_string()) {
    std::string_view own = id->get_ref<const std::string&>();
    own = own.substr(0, own.find('#'));
    if (!own.empty() && target.starts_with(own) && (target.size() == own.size() || target[own.size()] == '#'))
      target.remove_prefix(own.size());
  }
  if (!target.empty() && target[0] != '#')
    throw unsupported_at(schema, "$ref", "{} is outside of this schema; only #/… is supported", quote(target));
  if (has_inner_ids_)
    throw unsupported_at(schema, "$ref", "references in a schema with an inner $id are not supported");
  if (target.size() > 1 && target[1] != '/')
    throw unsupported_at(schema, "$ref", "{} is an anchor; only #/… is supported", quote(target));
  const Json* at = &root_;
  for (size_t from = target.find('/'); from != target.npos;) {
    const size_t to = target.find('/', from + 1);
    const std::string key = unescaped(target.substr(from + 1, to == target.npos ? to : to - from - 1));
    const Json* next = nullptr;
    if (at->is_object() && at->contains(key)) {
      next = &this->at(*at, key);
    } else if (at->is_array()) {
      size_t index = 0;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
      if (error == std::errc() && end == key.data() + key.size() && index < at->size()) next = &this->at(*at, index);
    }
    if (next == nullptr) throw invalid_at(schema, "$ref", "{} does not exist", quote(target));
    at = next;
    from = to;
  }
  return *at;
}

}  // namespace quire::grammar
