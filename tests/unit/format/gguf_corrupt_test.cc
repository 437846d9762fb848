// Broken GGUF files: each must end in one Error that names the file.
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "format/gguf.h"
#include "unit/format/gguf_bytes.h"

namespace quire {
namespace {

// The error message; "" if the bytes are valid. The heap copy has no slack, so that asan sees a read past the end.
std::string error_of_file(std::string_view file) {
  const std::vector<char> exact(file.begin(), file.end());
  try {
    Gguf::parse(as_bytes({exact.data(), exact.size()}), "broken.gguf");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

void expect_error(std::string_view file, std::string_view reason, const std::string& what) {
  const std::string message = error_of_file(file);
  EXPECT_NE(message.find("broken.gguf"), std::string::npos) << what << ": " << message;
  EXPECT_NE(message.find(reason), std::string::npos) << what << ": " << message;
}

TEST(CorruptGguf, IsRefusedWhenCutAnywhere) {
  const std::string whole = rich_gguf().text();
  ASSERT_EQ(error_of_file(whole), "");
  for (size_t n = 0; n < whole.size(); ++n) expect_error(std::string_view(whole).substr(0, n), "", std::to_string(n));
}

TEST(CorruptGguf, NeverCrashesWhenABitIsFlipped) {
  std::string file = rich_gguf().text();
  size_t refused = 0;
  for (size_t i = 0; i < file.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      file[i] = static_cast<char>(file[i] ^ (1 << bit));
      const std::string message = error_of_file(file);
      refused += !message.empty();
      if (!message.empty()) {
        EXPECT_NE(message.find("broken.gguf"), std::string::npos) << i << ": " << message;
      }
      file[i] = static_cast<char>(file[i] ^ (1 << bit));
    }
  }
  EXPECT_GT(refused, 1000u);
}

// Sets each field of 4 or 8 bytes to values that overflow.
TEST(CorruptGguf, NeverCrashesWhenAFieldIsHuge) {
  const GgufBytes f = rich_gguf();
  for (const size_t field : f.fields()) {
    for (const uint64_t value : {~uint64_t{0}, uint64_t{1} << 63, (uint64_t{1} << 63) - 1, uint64_t{1} << 62,
                                 uint64_t{1} << 32, uint64_t{0xffffffff}, uint64_t{0x80000000}, uint64_t{0}}) {
      for (const size_t bytes : {4u, 8u}) {
        std::string file = f.text();
        if (field + bytes > file.size()) continue;
        std::memcpy(&file[field], &value, bytes);
        const std::string message = error_of_file(file);
        if (!message.empty()) {
          EXPECT_NE(message.find("broken.gguf"), std::string::npos) << message;
        }
      }
    }
  }
}

struct Case {
  const char* reason;  // part of the message
  std::function<std::string()> file;
};

std::string keyed(const std::function<void(GgufBytes&)>& write, uint64_t keys = 1) {
  GgufBytes f(0, keys);
  write(f);
  return f.text();
}

std::string with_tensor(std::vector<uint64_t> dimensions, uint32_t type, uint64_t offset, size_t data,
                        std::string_view name = "w") {
  return GgufBytes(1, 0).tensor(name, std::move(dimensions), type, offset).pad().data(data).text();
}

std::string aligned(uint32_t alignment) {
  return keyed([&](GgufBytes& f) { f.key("general.alignment", GgufType::U32).number(alignment); });
}

std::string nested(int depth) {
  return keyed([&](GgufBytes& f) {
    f.key("k", GgufType::ARRAY);
    for (int i = 1; i < depth; ++i) f.type(GgufType::ARRAY).number<uint64_t>(1);
    f.type(GgufType::U8).number<uint64_t>(0);
  });
}

const std::vector<Case>& cases() {
  constexpr uint64_t kHuge = ~uint64_t{0};
  static const std::vector<Case> all = {
      {"not a GGUF file", [] { return std::string("ggufxxxxxxxxxxxxxxxxxxxxxxxx"); }},
      {"not a GGUF file", [] { return std::string("FUGGxxxxxxxxxxxxxxxxxxxxxxxx"); }},
      {"not a GGUF file", [] { return std::string("PK\3\4xxxxxxxxxxxxxxxxxxxxxxxx"); }},
      {"magic", [] { return std::string(); }},
      {"magic", [] { return std::string("GGU"); }},
      {"version 0", [] { return GgufBytes(0, 0, 0).text(); }},
      {"version 1", [] { return GgufBytes(0, 0, 1).text(); }},
      {"version 4", [] { return GgufBytes(0, 0, 4).text(); }},
      {"big-endian", [] { return GgufBytes(0, 0, 0x02000000).text(); }},
      {"big-endian", [] { return GgufBytes(0, 0, 0x03000000).text(); }},
      {"number of tensors", [] { return GgufBytes(kHuge, 0).text(); }},
      {"number of tensors", [] { return GgufBytes(1, 0).text(); }},
      {"number of tensors", [] { return GgufBytes(uint64_t{1} << 63, 0).text(); }},
      {"number of keys", [] { return GgufBytes(0, kHuge).text(); }},
      {"number of keys", [] { return GgufBytes(0, 1).text(); }},
      {"number of keys", [] { return GgufBytes(0, uint64_t{1} << 32).text(); }},
      {"key is empty", [] { return keyed([](GgufBytes& f) { f.key("", GgufType::U8).raw("xxxxxxx"); }); }},
      {"UTF-8", [] { return keyed([](GgufBytes& f) { f.key("\xff", GgufType::U32).raw("xxxx"); }); }},
      {"UTF-8", [] { return keyed([](GgufBytes& f) { f.key("a\xc0\x80", GgufType::U32).raw("xxxx"); }); }},
      {"UTF-8", [] { return keyed([](GgufBytes& f) { f.key("\xed\xa0\x80", GgufType::U32).raw("xxxx"); }); }},
      {"UTF-8", [] { return keyed([](GgufBytes& f) { f.key("\xf4\x90\x80\x80", GgufType::U32).raw("xxxx"); }); }},
      {"UTF-8", [] { return keyed([](GgufBytes& f) { f.key("cut\xe2\x96", GgufType::U32).raw("xxxx"); }); }},
      {"at most 65535",
       [] { return keyed([](GgufBytes& f) { f.key(std::string(65536, 'k'), GgufType::U32).raw("xxxx"); }); }},
      {"a key takes", [] { return keyed([](GgufBytes& f) { f.number(kHuge).raw("kkkkkkkkkk"); }); }},
      {"a key takes", [] { return keyed([](GgufBytes& f) { f.number<uint64_t>(7).raw("kkkkkk"); }); }},
      {"value's type is 13", [] { return keyed([](GgufBytes& f) { f.string("k").number(13u).raw("xxxx"); }); }},
      {"value's type is 4294967295", [] { return keyed([](GgufBytes& f) { f.string("k").number(~0u).raw("xxxx"); }); }},
      {"appears twice",
       [] {
         return keyed(
             [](GgufBytes& f) {
               f.key("k", GgufType::U8).number<uint8_t>(1).key("k", GgufType::U8).number<uint8_t>(1);
             },
             2);
       }},
      {"appears twice",
       [] {
         return keyed([](GgufBytes& f) { f.key("k", GgufType::U32).number(1u).key("k", GgufType::STRING).string("s"); },
                      2);
       }},
      {"found 2", [] { return keyed([](GgufBytes& f) { f.key("key", GgufType::BOOL).raw("\2"); }); }},
      {"found 255", [] { return keyed([](GgufBytes& f) {
                           f.array("k", GgufType::BOOL, 3).raw({"\0\1\xff", 3});
                         }); }},
      {"a string takes", [] { return keyed([](GgufBytes& f) { f.key("k", GgufType::STRING).number(kHuge); }); }},
      {"a string takes", [] { return keyed([](GgufBytes& f) { f.key("k", GgufType::STRING).number<uint64_t>(1); }); }},
      {"I64 takes", [] { return keyed([](GgufBytes& f) { f.key("k", GgufType::I64).raw("1234567"); }); }},
      {"F64 takes", [] { return keyed([](GgufBytes& f) { f.key("k", GgufType::F64).raw("1234567"); }); }},
      {"F32 takes", [] { return keyed([](GgufBytes& f) { f.key("k", GgufType::F32).raw("123"); }); }},
      {"element type is 13",
       [] { return keyed([](GgufBytes& f) { f.key("k", GgufType::ARRAY).number(13u).number<uint64_t>(0); }); }},
      {"array's length", [] { return keyed([](GgufBytes& f) { f.array("k", GgufType::U8, kHuge); }); }},
      {"array's length", [] { return keyed([](GgufBytes& f) { f.array("k", GgufType::U8, 4).raw("123"); }); }},
      {"array's length", [] { return keyed([](GgufBytes& f) { f.array("k", GgufType::U64, uint64_t{1} << 61); }); }},
      {"array's length",
       [] { return keyed([](GgufBytes& f) { f.array("k", GgufType::I32, (uint64_t{1} << 62) + 1); }); }},
      {"array's length", [] { return keyed([](GgufBytes& f) { f.array("k", GgufType::STRING, uint64_t{1} << 61); }); }},
      {"array's length", [] { return keyed([](GgufBytes& f) { f.array("k", GgufType::STRING, 2).string("a"); }); }},
      {"array's length", [] { return keyed([](GgufBytes& f) { f.array("k", GgufType::ARRAY, kHuge); }); }},
      {"string of the array",
       [] { return keyed([](GgufBytes& f) { f.array("k", GgufType::STRING, 1).number(kHuge).raw("abc"); }); }},
      {"string of the array",
       [] {
         return keyed([](GgufBytes& f) { f.array("k", GgufType::STRING, 2).string("12345678").number(kHuge - 4); });
       }},
      {"nested deeper", [] { return nested(5); }},
      {"nested deeper", [] { return nested(1000); }},
      {"nested deeper", [] { return nested(100000); }},
      {"general.alignment", [] { return aligned(0); }},
      {"general.alignment", [] { return aligned(1); }},
      {"general.alignment", [] { return aligned(4); }},
      {"general.alignment", [] { return aligned(24); }},
      {"general.alignment", [] { return aligned(33); }},
      {"general.alignment", [] { return aligned(0xffffffff); }},
      {"general.alignment",
       [] { return keyed([](GgufBytes& f) { f.key("general.alignment", GgufType::STRING).string("32"); }); }},
      {"general.alignment",
       [] { return keyed([](GgufBytes& f) { f.key("general.alignment", GgufType::I32).number(-32); }); }},
      {"general.alignment",
       [] { return keyed([](GgufBytes& f) { f.key("general.alignment", GgufType::F32).number(32.0f); }); }},
      {"split.count", [] { return keyed([](GgufBytes& f) { f.key("split.count", GgufType::STRING).string("2"); }); }},
      {"split.count", [] { return keyed([](GgufBytes& f) { f.key("split.count", GgufType::I32).number(-1); }); }},
      {"name is empty", [] { return with_tensor({4}, 0, 0, 16, ""); }},
      {"UTF-8", [] { return with_tensor({4}, 0, 0, 16, "\x80"); }},
      {"UTF-8", [] { return with_tensor({4}, 0, 0, 16, "w\xf8\x88\x80\x80\x80"); }},
      {"at most 65535", [] { return with_tensor({4}, 0, 0, 16, std::string(70000, 'w')); }},
      {"name takes", [] { return GgufBytes(1, 0).number(kHuge).raw(std::string(40, 'x')).text(); }},
      {"5 dimensions",
       [] {
         return with_tensor({1, 1, 1, 1, 1}, 0, 0, 4);
       }},
      {"4294967295 dimensions",
       [] { return GgufBytes(1, 0).string("w").number(~0u).raw(std::string(40, 'x')).text(); }},
      {"dimension 0 is 0", [] { return with_tensor({0}, 0, 0, 16); }},
      {"dimension 1 is 0",
       [] {
         return with_tensor({4, 0, 4}, 0, 0, 16);
       }},
      {"overflows", [] { return with_tensor({uint64_t{1} << 62}, 0, 0, 16); }},
      {"overflows",
       [] {
         return with_tensor({uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0, 16);
       }},
      {"overflows",
       [] {
         return with_tensor({uint64_t{1} << 16, 1 << 16, 1 << 16, 1 << 16}, 0, 0, 16);
       }},
      {"overflows",
       [] {
         return with_tensor({kHuge, kHuge, kHuge, kHuge}, 24, 0, 16);
       }},
      {"overflows",
       [] {
         return with_tensor({kHuge / 256 * 256, 2}, 12, 0, 16);
       }},
      {"passes the end", [] { return with_tensor({kHuge}, 24, 0, 16); }},
      {"passes the end", [] { return with_tensor({(uint64_t{1} << 61) - 1}, 27, 0, 16); }},
      {"type 43", [] { return with_tensor({4}, 43, 0, 16); }},
      {"type 4294967295", [] { return with_tensor({4}, ~0u, 0, 16); }},
      {"blocks of 32", [] { return with_tensor({33}, 2, 0, 64); }},
      {"blocks of 32",
       [] {
         return with_tensor({16, 2}, 8, 0, 64);
       }},
      {"blocks of 256", [] { return with_tensor({128}, 12, 0, 144); }},
      {"blocks of 256",
       [] {
         return with_tensor({1, 256}, 14, 0, 210);
       }},
      {"blocks of 64", [] { return with_tensor({96}, 40, 0, 200); }},
      {"blocks of 32", [] { return with_tensor({}, 2, 0, 64); }},
      {"multiple of the alignment", [] { return with_tensor({4}, 0, 1, 64); }},
      {"multiple of the alignment", [] { return with_tensor({4}, 0, 16, 64); }},
      {"multiple of the alignment", [] { return with_tensor({4}, 0, kHuge, 64); }},
      {"overflows", [] { return with_tensor({64}, 0, kHuge - 31, 64); }},
      {"passes the end", [] { return with_tensor({4}, 0, 0, 15); }},
      {"passes the end", [] { return with_tensor({4}, 0, 32, 47); }},
      {"passes the end", [] { return with_tensor({4}, 0, uint64_t{1} << 63, 64); }},
      {"passes the end", [] { return with_tensor({4}, 0, kHuge - 63, 64); }},
      {"passes the end", [] { return GgufBytes(1, 0).tensor("w", {4}, 0, 0).text(); }},
      {"overlaps", [] { return GgufBytes(2, 0).tensor("a", {4}, 0, 0).tensor("b", {4}, 0, 0).pad().data(16).text(); }},
      {"overlaps", [] { return GgufBytes(2, 0).tensor("a", {4}, 0, 32).tensor("b", {9}, 0, 0).pad().data(64).text(); }},
      {"appears twice",
       [] { return GgufBytes(2, 0).tensor("a", {4}, 0, 0).tensor("a", {4}, 0, 32).pad().data(64).text(); }},
  };
  return all;
}

TEST(CorruptGguf, IsRefusedWithItsReason) {
  for (size_t i = 0; i < cases().size(); ++i) {
    expect_error(cases()[i].file(), cases()[i].reason, "case " + std::to_string(i));
  }
}

TEST(CorruptGguf, MessagesNameThePlace) {
  EXPECT_EQ(error_of_file(with_tensor({33}, 2, 0, 64)),
            "broken.gguf: tensor \"w\" at offset 45: shape [33] does not fit type Q4_0: rows are whole blocks of 32");
  EXPECT_EQ(
      error_of_file(keyed([](GgufBytes& f) { f.array("k", GgufType::U8, 4).raw("123"); })),
      "broken.gguf: key \"k\" at offset 41: an array's length is 4, but the 3 bytes left in the file hold at most 3");
}

TEST(Gguf, ReadsArraysNestedUpToTheBound) { EXPECT_EQ(error_of_file(nested(4)), ""); }

}  // namespace
}  // namespace quire
