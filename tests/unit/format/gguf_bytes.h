// Writes valid or deliberately broken GGUF files in memory and records where each field begins.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf.h"

namespace quire {

class GgufBytes {
 public:
  explicit GgufBytes(uint64_t tensors = 0, uint64_t keys = 0, uint32_t version = 3) {
    raw("GGUF");
    number(version);
    number(tensors);
    number(keys);
  }

  template <class T>
  GgufBytes& number(T value) {
    fields_.push_back(text_.size());
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  GgufBytes& type(GgufType type) { return number(static_cast<uint32_t>(type)); }
  GgufBytes& raw(std::string_view text) {
    fields_.push_back(text_.size());
    text_ += text;
    return *this;
  }
  GgufBytes& string(std::string_view text) { return number<uint64_t>(text.size()).raw(text); }

  GgufBytes& key(std::string_view key, GgufType value_type) { return string(key).type(value_type); }
  GgufBytes& array(std::string_view name, GgufType element, uint64_t count) {
    return key(name, GgufType::ARRAY).type(element).number(count);
  }
  // Dimensions innermost first, as in the file.
  GgufBytes& tensor(std::string_view name, std::vector<uint64_t> dimensions, uint32_t type, uint64_t offset) {
    string(name).number(static_cast<uint32_t>(dimensions.size()));
    for (const uint64_t d : dimensions) number(d);
    return number(type).number(offset);
  }
  GgufBytes& pad(size_t alignment = 32) {
    text_.resize((text_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  GgufBytes& data(size_t bytes) {
    text_.append(bytes, '\1');
    return *this;
  }

  const std::string& text() const { return text_; }
  const std::vector<size_t>& fields() const { return fields_; }  // where each field begins

 private:
  std::string text_;
  std::vector<size_t> fields_;
};

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// Every kind of key, and two tensors.
inline GgufBytes rich_gguf() {
  GgufBytes f(2, 17);
  f.key("general.architecture", GgufType::STRING).string("llama");
  f.key("t.u8", GgufType::U8).number<uint8_t>(200);
  f.key("t.i8", GgufType::I8).number<int8_t>(-100);
  f.key("t.u16", GgufType::U16).number<uint16_t>(60000);
  f.key("t.i16", GgufType::I16).number<int16_t>(-30000);
  f.key("t.u32", GgufType::U32).number<uint32_t>(4000000000u);
  f.key("t.i32", GgufType::I32).number<int32_t>(-7);
  f.key("t.u64", GgufType::U64).number<uint64_t>(~uint64_t{0});
  f.key("t.i64", GgufType::I64).number<int64_t>(-(int64_t{1} << 40));
  f.key("t.f32", GgufType::F32).number<float>(0.5f);
  f.key("t.f64", GgufType::F64).number<double>(0.1);
  f.key("t.bool", GgufType::BOOL).number<uint8_t>(1);
  f.array("a.strings", GgufType::STRING, 3).string("a").string("").string("\xe2\x96\x81word");
  f.array("a.ints", GgufType::I32, 3).number<int32_t>(1).number<int32_t>(-2).number<int32_t>(3);
  f.array("a.floats", GgufType::F32, 2).number<float>(1.5f).number<float>(-2.5f);
  f.array("a.bools", GgufType::BOOL, 2).number<uint8_t>(0).number<uint8_t>(1);
  f.array("a.nested", GgufType::ARRAY, 2);
  f.type(GgufType::I32).number<uint64_t>(2).number<int32_t>(1).number<int32_t>(2);
  f.type(GgufType::STRING).number<uint64_t>(1).string("x");
  f.tensor("token_embd.weight", {32, 2}, 2, 0);  // Q4_0, 36 bytes
  f.tensor("norm.weight", {5}, 0, 64);           // F32, 20 bytes
  f.pad().data(36).pad().data(20);
  return f;
}

}  // namespace quire
