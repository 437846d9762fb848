#include "format/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "error_of.h"

namespace quire {
namespace {

std::string file_of(std::string_view header, size_t data, uint64_t length_off_by = 0) {
  const uint64_t length = header.size() + length_off_by;
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + std::string(header) + std::string(data, '\1');
}

std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// "" if the file is valid. The copy has no slack, so that asan sees a read past the end.
std::string error_of(const std::string& file) {
  const std::vector<char> exact(file.begin(), file.end());
  try {
    Safetensors::parse(as_bytes({exact.data(), exact.size()}), "broken.safetensors");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

constexpr std::string_view kTwo =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[16,28]},)"
    R"("a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"e":{"dtype":"U8","shape":[0,7],"data_offsets":[16,16]}}   )";

TEST(Safetensors, ListsTensorsInTheOrderOfTheData) {
  const std::string file = file_of(kTwo, 28);
  const Safetensors s = Safetensors::parse(as_bytes(file), "two.safetensors");
  ASSERT_EQ(s.tensors().size(), 3u);
  EXPECT_EQ(s.tensors()[0].name, "a");
  EXPECT_EQ(s.tensors()[1].name, "e");
  EXPECT_TRUE(s.tensors()[1].bytes.empty());
  const TensorView* b = s.find_tensor("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->type, TensorType::BF16);
  EXPECT_EQ(b->shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(b->bytes.size(), 12u);
  EXPECT_EQ(s.find_tensor("c"), nullptr);
  EXPECT_EQ(s.metadata().at("format"), "pt");
}

TEST(Safetensors, ReadsAFileWithoutTensors) {
  EXPECT_TRUE(Safetensors::parse(as_bytes(file_of("{}", 0)), "x").tensors().empty());
}

TEST(Safetensors, KnowsTheSizeOfEveryType) {
  for (const auto& [type, bytes] : std::vector<std::pair<std::string, size_t>>{
           {"BOOL", 24}, {"U8", 24},   {"I8", 24},   {"F8_E4M3", 24}, {"F8_E5M2", 24}, {"F8_E8M0", 24}, {"I16", 48},
           {"U16", 48},  {"F16", 48},  {"BF16", 48}, {"I32", 96},     {"U32", 96},     {"F32", 96},     {"F64", 192},
           {"I64", 192}, {"U64", 192}, {"C64", 192}, {"F4", 12},      {"F6_E2M3", 18}, {"F6_E3M2", 18}}) {
    const auto header = fmt::format(R"({{"x":{{"dtype":"{}","shape":[3,8],"data_offsets":[0,{}]}}}})", type, bytes);
    EXPECT_EQ(error_of(file_of(header, bytes)), "") << type;
  }
}

TEST(CorruptSafetensors, IsRefusedWhenCutAnywhere) {
  const std::string whole = file_of(kTwo, 28);
  ASSERT_EQ(error_of(whole), "");
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_NE(error_of(whole.substr(0, n)).find("broken.safetensors"), std::string::npos) << n;
  }
}

TEST(CorruptSafetensors, NeverCrashesWhenABitIsFlipped) {
  std::string file = file_of(kTwo, 28);
  for (size_t i = 0; i < file.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      file[i] = static_cast<char>(file[i] ^ (1 << bit));
      const std::string message = error_of(file);
      if (!message.empty()) {
        EXPECT_NE(message.find("broken.safetensors"), std::string::npos) << i;
      }
      file[i] = static_cast<char>(file[i] ^ (1 << bit));
    }
  }
}

std::string entry(std::string_view fields) { return fmt::format(R"({{"x":{{{}}}}})", fields); }
std::string f32(std::string_view shape, std::string_view offsets) {
  return entry(fmt::format(R"("dtype":"F32","shape":{},"data_offsets":{})", shape, offsets));
}
std::string two(std::string_view a, std::string_view b) {
  return fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":{}}},)"
                     R"("b":{{"dtype":"U8","shape":[4],"data_offsets":{}}}}})",
                     a, b);
}

TEST(CorruptSafetensors, IsRefusedWithItsReason) {
  struct Case {
    const char* reason;
    std::string file;
  };
  const std::string deep = std::string(100'000, '[');
  std::string deep_object;
  for (int i = 0; i < 100'000; ++i) deep_object += R"({"a":)";
  const std::vector<Case> cases = {
      {"not a safetensors file", ""},
      {"not a safetensors file", "1234567"},
      {"exceeds the file", file_of("{}", 0, 1)},
      {"exceeds the file", file_of("{}", 0, ~uint64_t{0} - 2)},
      {"exceeds the file", file_of("{}", 0, uint64_t{1} << 63)},
      {"exceeds the allowed", file_of("{}", 100'000'002, 99'999'999)},
      {"is not a JSON object", file_of("", 0)},
      {"is not a JSON object", file_of("[]", 0)},
      {"is not a JSON object", file_of(" {}", 0)},
      {"is not a JSON object", file_of("null", 0)},
      {"header:1:", file_of("{", 0)},
      {"header:1:", file_of("{}x", 0)},
      {"header:1:", file_of("{}{}", 0)},
      {"header:1:", file_of("{\"a\":}", 0)},
      {"header:1:", file_of("{\"a\":NaN}", 0)},
      {"header:1:", file_of("{\"a\":1e999}", 0)},
      {"header:1:", file_of("{\"\xff\":1}", 0)},
      {"header:1:", file_of("{\"\xc0\x80\":1}", 0)},
      {"header:1:", file_of("{\"\\ud800\":1}", 0)},
      {"header:1:", file_of("{'a':1}", 0)},
      {"a zero byte", file_of(std::string_view("{}\0", 3), 0)},
      {"a zero byte", file_of(std::string_view("{}\0{\"hidden\":1}", 15), 0)},
      {"nested deeper", file_of("{\"a\":" + deep, 0)},
      {"nested deeper", file_of(deep_object, 0)},
      {"appears twice", file_of(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":1})", 0)},
      {"appears twice", file_of(entry(R"("dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4])"), 4)},
      {"appears twice", file_of(R"({"__metadata__":{},"__metadata__":{}})", 0)},
      {"__metadata__", file_of(R"({"__metadata__":[]})", 0)},
      {"__metadata__", file_of(R"({"__metadata__":null})", 0)},
      {"__metadata__", file_of(R"({"__metadata__":{"a":1}})", 0)},
      {"__metadata__", file_of(R"({"__metadata__":{"a":{}}})", 0)},
      {"its entry is not an object", file_of(R"({"x":1})", 0)},
      {"its entry is not an object", file_of(R"({"x":null})", 0)},
      {"its entry is not an object", file_of(R"({"x":[]})", 0)},
      {"dtype", file_of(entry(R"("shape":[1],"data_offsets":[0,4])"), 4)},
      {"dtype", file_of(entry(R"("dtype":1,"shape":[1],"data_offsets":[0,4])"), 4)},
      {"dtype \"F31\" is unknown", file_of(entry(R"("dtype":"F31","shape":[1],"data_offsets":[0,4])"), 4)},
      {"dtype \"f32\" is unknown", file_of(entry(R"("dtype":"f32","shape":[1],"data_offsets":[0,4])"), 4)},
      {"dtype \"Q4_0\" is unknown", file_of(entry(R"("dtype":"Q4_0","shape":[32],"data_offsets":[0,18])"), 18)},
      {"dtype \"\" is unknown", file_of(entry(R"("dtype":"","shape":[1],"data_offsets":[0,4])"), 4)},
      {"shape is missing", file_of(entry(R"("dtype":"F32","data_offsets":[0,4])"), 4)},
      {"shape is not an array", file_of(f32("1", "[0,4]"), 4)},
      {"shape is not an array", file_of(f32("{}", "[0,4]"), 4)},
      {"found \"-1\"", file_of(f32("[-1]", "[0,4]"), 4)},
      {"found \"1.0\"", file_of(f32("[1.0]", "[0,4]"), 4)},
      {"shape: expected integers", file_of(f32("[\"1\"]", "[0,4]"), 4)},
      {"shape: expected integers from 0 to 2^64-1, found an array", file_of(f32("[[1]]", "[0,4]"), 4)},
      {"shape: expected integers", file_of(f32("[18446744073709551616]", "[0,4]"), 4)},
      {"overflows", file_of(f32("[18446744073709551615]", "[0,4]"), 4)},
      {"overflows", file_of(f32("[4294967296,4294967296]", "[0,0]"), 0)},
      {"overflows", file_of(f32("[4611686018427387904]", "[0,0]"), 0)},
      {"does not fit dtype F4", file_of(entry(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])"), 2)},
      {"data_offsets is missing", file_of(entry(R"("dtype":"F32","shape":[1])"), 4)},
      {"data_offsets is not an array", file_of(f32("[1]", "4"), 4)},
      {"data_offsets has 0", file_of(f32("[1]", "[]"), 4)},
      {"data_offsets has 1", file_of(f32("[1]", "[0]"), 4)},
      {"data_offsets has 3", file_of(f32("[1]", "[0,4,8]"), 4)},
      {"data_offsets: expected integers", file_of(f32("[1]", "[0,-4]"), 4)},
      {"data_offsets: expected integers", file_of(f32("[1]", "[0,null]"), 4)},
      {"data_offsets: expected integers", file_of(f32("[1]", "[0,4.5]"), 4)},
      {"does not lie within", file_of(f32("[1]", "[4,0]"), 4)},
      {"does not lie within", file_of(f32("[1]", "[0,4]"), 3)},
      {"does not lie within", file_of(f32("[1]", "[0,18446744073709551615]"), 4)},
      {"does not lie within", file_of(f32("[1]", "[18446744073709551612,18446744073709551615]"), 4)},
      {"spans 4 bytes", file_of(f32("[2]", "[0,4]"), 4)},
      {"spans 8 bytes", file_of(f32("[]", "[0,8]"), 8)},
      {"spans 0 bytes", file_of(f32("[1]", "[0,0]"), 0)},
      {"there is a gap", file_of(f32("[1]", "[4,8]"), 8)},
      {"there is a gap", file_of(two("[0,4]", "[5,9]"), 9)},
      {"overlap", file_of(two("[0,4]", "[0,4]"), 4)},
      {"overlap", file_of(two("[0,4]", "[3,7]"), 7)},
      {"after the last tensor", file_of(f32("[1]", "[0,4]"), 5)},
      {"after the last tensor", file_of("{}", 1)},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::string message = error_of(cases[i].file);
    EXPECT_NE(message.find("broken.safetensors"), std::string::npos) << "case " << i << ": " << message;
    EXPECT_NE(message.find(cases[i].reason), std::string::npos) << "case " << i << ": " << message;
  }
}

class SafetensorsShards : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() / ("quire_shards_" + std::string(test->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    write("1.safetensors", file_of(f32("[1]", "[0,4]"), 4));
    write("2.safetensors", file_of(two("[0,4]", "[4,8]"), 8));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ / name, std::ios::binary) << content;
  }
  // The error of opening the folder with this index; "" if it opens.
  std::string error(const std::string& index) {
    write("model.safetensors.index.json", index);
    try {
      Safetensors::open(folder_);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
  std::filesystem::path folder_;
};

TEST_F(SafetensorsShards, ListExactlyTheTensorsOfTheWeightMap) {
  write("model.safetensors.index.json",
        R"({"metadata":{"total_size":12},"weight_map":{"x":"1.safetensors","b":"2.safetensors"}})");
  const Safetensors s = Safetensors::open(folder_);
  ASSERT_EQ(s.tensors().size(), 2u);
  EXPECT_EQ(s.find_tensor("x")->bytes.size(), 4u);
  EXPECT_EQ(s.find_tensor("b")->type, TensorType::U8);
  EXPECT_EQ(s.find_tensor("a"), nullptr);
}

TEST_F(SafetensorsShards, AreIgnoredIfThereIsASingleFile) {
  write("model.safetensors.index.json", "broken");
  write("model.safetensors", file_of(f32("[1]", "[0,4]"), 4));
  EXPECT_EQ(Safetensors::open(folder_).tensors().size(), 1u);
}

TEST_F(SafetensorsShards, AreRefusedWhenBroken) {
  const auto map = [](std::string_view entries) { return fmt::format(R"({{"weight_map":{{{}}}}})", entries); };
  for (const auto& [index, reason] : std::vector<std::pair<std::string, std::string>>{
           {"", ":1:1: "},
           {"[]", "expected an object"},
           {"{}", "weight_map is missing"},
           {R"({"weight_map":[]})", "weight_map: expected an object"},
           {map(R"("x":1)"), "weight_map.x: expected a string"},
           {map(R"("x":null)"), "weight_map.x: expected a string, found null"},
           {map(R"("x":"")"), "is not a plain file name"},
           {map(R"("x":"..")"), "is not a plain file name"},
           {map(R"("x":"../1.safetensors")"), "is not a plain file name"},
           {map(R"("x":"/etc/passwd")"), "is not a plain file name"},
           {map(R"("x":"a/1.safetensors")"), "is not a plain file name"},
           {map(R"("x":"a\\1.safetensors")"), "is not a plain file name"},
           {map(R"("x":"1.safetensors\u0000")"), "is not a plain file name"},
           {map(R"("x":"3.safetensors")"), "3.safetensors"},
           {map(R"("y":"1.safetensors")"), "\"y\" is not in"},
           {map(R"("x":"2.safetensors")"), "\"x\" is not in"},
           {map(R"("x":"model.safetensors.index.json")"), "not a safetensors file"}}) {
    const std::string message = error(index);
    EXPECT_NE(message.find(reason), std::string::npos) << index << ": " << message;
    EXPECT_NE(message.find("safetensors"), std::string::npos) << message;
  }
}

TEST_F(SafetensorsShards, AreAllReadWithoutAnIndex) {
  const auto folder_error = [&] { return quire::error_of([&] { Safetensors::open(folder_); }); };
  write("consolidated.safetensors", file_of(f32("[1]", "[0,4]"), 4));  // the same again, as Mistral ships it
  write("README.md", "nothing");
  const Safetensors s = Safetensors::open(folder_);
  EXPECT_EQ(s.tensors().size(), 3u);
  EXPECT_NE(s.find_tensor("x"), nullptr);
  EXPECT_NE(s.find_tensor("b"), nullptr);
  EXPECT_EQ(s.file(), folder_.string());
  write("3.safetensors", file_of(f32("[1]", "[0,4]"), 4));
  EXPECT_EQ(folder_error(), folder_.string() +
                                ": tensor \"x\" is in two of its safetensors files, and no "
                                "model.safetensors.index.json says which one counts");
  std::filesystem::remove(folder_ / "3.safetensors");
  std::filesystem::rename(folder_ / "1.safetensors", folder_ / "model-00001-of-00003.safetensors");
  std::filesystem::rename(folder_ / "2.safetensors", folder_ / "model-00002-of-00003.safetensors");
  EXPECT_EQ(folder_error(),
            folder_.string() + ": holds 2 of the 3 files that model-00001-of-00003.safetensors is one of");
}

TEST_F(SafetensorsShards, AreNamedIfTheyAreGitLfsPointers) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 98362432\n";
  write("2.safetensors", pointer);
  for (const char* file : {"", "2.safetensors"})
    EXPECT_NE(quire::error_of([&] { Safetensors::open(folder_ / file); }).find("git lfs pull"), std::string::npos);
  EXPECT_NE(error(pointer).find("model.safetensors.index.json is a git-lfs pointer"), std::string::npos);
  EXPECT_NE(error(R"({"weight_map":{"a":"2.safetensors"}})").find("2.safetensors is a git-lfs pointer"),
            std::string::npos);
}

TEST_F(SafetensorsShards, NeedAnIndexOrAFile) {
  std::filesystem::create_directory(folder_ / "empty");
  EXPECT_EQ(quire::error_of([&] { Safetensors::open(folder_ / "empty"); }),
            (folder_ / "empty").string() + ": holds no safetensors files");
  EXPECT_THROW(Safetensors::open(folder_ / "absent.safetensors"), Error);
  EXPECT_THROW(Safetensors::open(folder_ / "absent.index.json"), Error);
}

}  // namespace
}  // namespace quire
