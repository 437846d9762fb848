#include "format/gguf.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "unit/format/gguf_bytes.h"

namespace quire {
namespace {

TEST(Gguf, ReadsEveryTypeOfScalar) {
  const GgufBytes f = rich_gguf();
  const Gguf g = Gguf::parse(as_bytes(f.text()), "rich.gguf");
  EXPECT_EQ(g.version(), 3u);
  EXPECT_EQ(g.keys().size(), 17u);
  EXPECT_EQ(g.keys().front(), "general.architecture");
  EXPECT_EQ(g.get<std::string>("general.architecture"), "llama");
  EXPECT_EQ(g.get<std::string_view>("general.architecture"), "llama");
  EXPECT_EQ(g.get<int>("t.u8"), 200);
  EXPECT_EQ(g.get<int64_t>("t.i8"), -100);
  EXPECT_EQ(g.get<uint16_t>("t.u16"), 60000);
  EXPECT_EQ(g.get<int16_t>("t.i16"), -30000);
  EXPECT_EQ(g.get<uint32_t>("t.u32"), 4000000000u);
  EXPECT_EQ(g.get<int8_t>("t.i32"), -7);
  EXPECT_EQ(g.get<uint64_t>("t.u64"), ~uint64_t{0});
  EXPECT_EQ(g.get<int64_t>("t.i64"), -(int64_t{1} << 40));
  EXPECT_EQ(g.get<float>("t.f32"), 0.5f);
  EXPECT_EQ(g.get<double>("t.f64"), 0.1);
  EXPECT_TRUE(g.get<bool>("t.bool"));
}

TEST(Gguf, ReturnsTheFallbackOnlyForAMissingKey) {
  const GgufBytes f = rich_gguf();
  const Gguf g = Gguf::parse(as_bytes(f.text()), "rich.gguf");
  EXPECT_EQ(g.get_or<uint32_t>("absent", 7), 7u);
  EXPECT_EQ(g.get_or<std::string>("absent", "x"), "x");
  EXPECT_EQ(g.get_or<uint32_t>("t.u8", 7), 200u);
  EXPECT_THROW(g.get_or<uint32_t>("t.f32", 7), Error);
  EXPECT_FALSE(g.has("absent"));
}

TEST(Gguf, ReadsArrays) {
  const GgufBytes f = rich_gguf();
  const Gguf g = Gguf::parse(as_bytes(f.text()), "rich.gguf");
  EXPECT_EQ(g.strings("a.strings"), (std::vector<std::string_view>{"a", "", "\xe2\x96\x81word"}));
  EXPECT_EQ(g.numbers<int64_t>("a.ints"), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(g.numbers<float>("a.floats"), (std::vector<float>{1.5f, -2.5f}));
  EXPECT_EQ(g.numbers<bool>("a.bools"), (std::vector<bool>{false, true}));
  const auto nested = g.find("a.nested")->elements();
  ASSERT_EQ(nested.size(), 2u);
  EXPECT_EQ(nested[0].element, GgufType::I32);
  EXPECT_EQ(nested[0].elements().size(), 2u);
  EXPECT_EQ(nested[1].element, GgufType::STRING);
  EXPECT_EQ(nested[1].elements()[0].bytes.size(), 1u);
}

TEST(Gguf, NamesTheTypeFoundAndTheTypeExpected) {
  const GgufBytes f = rich_gguf();
  const Gguf g = Gguf::parse(as_bytes(f.text()), "rich.gguf");
  const auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(message([&] { g.get<int>("absent"); }), "rich.gguf: key \"absent\" is missing");
  EXPECT_EQ(message([&] { g.get<int>("t.f32"); }), "rich.gguf: key \"t.f32\": expected an integer, found F32");
  EXPECT_EQ(message([&] { g.get<float>("t.i32"); }), "rich.gguf: key \"t.i32\": expected F32 or F64, found I32");
  EXPECT_EQ(message([&] { g.get<bool>("t.u8"); }), "rich.gguf: key \"t.u8\": expected BOOL, found U8");
  EXPECT_EQ(message([&] { g.get<std::string>("a.ints"); }),
            "rich.gguf: key \"a.ints\": expected STRING, found an array of I32");
  EXPECT_EQ(message([&] { g.get<uint32_t>("t.i32"); }),
            "rich.gguf: key \"t.i32\": expected an integer from 0 to 4294967295, found -7");
  EXPECT_EQ(message([&] { g.strings("a.ints"); }),
            "rich.gguf: key \"a.ints\": expected an array of STRING, found an array of I32");
  EXPECT_EQ(message([&] { g.numbers<float>("a.ints"); }),
            "rich.gguf: key \"a.ints\": expected an array of F32 or F64, found an array of I32");
  EXPECT_EQ(message([&] { g.numbers<float>("t.f32"); }), "rich.gguf: key \"t.f32\": expected an array, found F32");
  EXPECT_EQ(message([&] { g.numbers<int>("a.nested"); }),
            "rich.gguf: key \"a.nested\": expected an array of an integer, found an array of ARRAY");
  EXPECT_EQ(message([&] { g.numbers<int>("a.strings"); }),
            "rich.gguf: key \"a.strings\": expected an array of an integer, found an array of STRING");
  EXPECT_EQ(message([&] { g.numbers<uint8_t>("a.ints"); }),
            "rich.gguf: key \"a.ints\": expected an integer from 0 to 255, found -2");
}

TEST(Gguf, ListsDimensionsOutermostFirst) {
  const GgufBytes f = rich_gguf();
  const Gguf g = Gguf::parse(as_bytes(f.text()), "rich.gguf");
  ASSERT_EQ(g.tensors().size(), 2u);
  const TensorView* t = g.find_tensor("token_embd.weight");
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(t->type, TensorType::Q4_0);
  EXPECT_EQ(t->shape, (std::vector<uint64_t>{2, 32}));
  EXPECT_EQ(t->bytes.size(), 36u);
  EXPECT_EQ(g.find_tensor("norm.weight")->bytes.data() - t->bytes.data(), 64);
  EXPECT_EQ(g.find_tensor("absent"), nullptr);
}

TEST(Gguf, KeepsItsViewsWhenMoved) {
  const GgufBytes f = rich_gguf();
  Gguf a = Gguf::parse(as_bytes(f.text()), "rich.gguf");
  const Gguf b = std::move(a);
  EXPECT_NE(b.find_tensor("norm.weight"), nullptr);
  EXPECT_EQ(b.get<std::string_view>("general.architecture"), "llama");
}

TEST(Gguf, ReadsVersion2AndFilesWithoutTensorsOrKeys) {
  const GgufBytes empty(0, 0, 2);
  const Gguf g = Gguf::parse(as_bytes(empty.text()), "empty.gguf");
  EXPECT_EQ(g.version(), 2u);
  EXPECT_TRUE(g.tensors().empty());
  EXPECT_TRUE(g.keys().empty());
}

TEST(Gguf, FollowsTheFilesAlignment) {
  GgufBytes f(1, 1);
  f.key("general.alignment", GgufType::U32).number<uint32_t>(256);
  f.tensor("x", {4}, 0, 256).pad(256).data(256 + 16);
  const Gguf g = Gguf::parse(as_bytes(f.text()), "aligned.gguf");
  EXPECT_EQ(g.find_tensor("x")->bytes.data() - as_bytes(f.text()).data(), 512);
}

// A temporary folder for one test.
class GgufParts : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() / ("quire_gguf_" + std::string(test->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  struct Split {
    uint16_t no, count;
    int32_t tensors;
    std::string tensor;
  };
  std::filesystem::path write(const std::string& name, const Split& split) {
    GgufBytes f(1, 3);
    f.key("split.no", GgufType::U16).number(split.no);
    f.key("split.count", GgufType::U16).number(split.count);
    f.key("split.tensors.count", GgufType::I32).number(split.tensors);
    f.tensor(split.tensor, {4}, 0, 0).pad().data(16);
    std::ofstream(folder_ / name, std::ios::binary) << f.text();
    return folder_ / name;
  }
  // The message of the Error; "" if none.
  std::string error(const std::string& name) {
    try {
      Gguf::open(folder_ / name);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
  std::filesystem::path folder_;
};

TEST_F(GgufParts, OpenFromAnyPart) {
  for (uint16_t i = 0; i < 3; ++i) {
    write("m-0000" + std::to_string(i + 1) + "-of-00003.gguf", {i, 3, 3, "t" + std::to_string(i)});
  }
  for (const char* part : {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    const Gguf g = Gguf::open(folder_ / part);
    ASSERT_EQ(g.tensors().size(), 3u) << part;
    EXPECT_EQ(g.tensors()[0].name, "t0");
    EXPECT_EQ(g.find_tensor("t2")->bytes.size(), 16u);
    EXPECT_EQ(g.get<int>("split.no"), 0);
  }
}

TEST_F(GgufParts, OpenIfTheOnlyPartIsNamedAsAPart) {
  EXPECT_EQ(Gguf::open(write("m-00001-of-00001.gguf", {0, 1, 1, "t"})).tensors().size(), 1u);
}

TEST_F(GgufParts, RefuseAMissingPart) {
  write("m-00001-of-00002.gguf", {0, 2, 2, "a"});
  EXPECT_NE(error("m-00001-of-00002.gguf").find("m-00002-of-00002.gguf"), std::string::npos);
}

TEST_F(GgufParts, RefuseAWrongNumber) {
  write("m-00001-of-00002.gguf", {0, 2, 2, "a"});
  write("m-00002-of-00002.gguf", {0, 2, 2, "b"});
  EXPECT_NE(error("m-00001-of-00002.gguf").find("\"split.no\": expected 1"), std::string::npos);
}

TEST_F(GgufParts, RefuseAWrongCount) {
  write("m-00001-of-00002.gguf", {0, 2, 2, "a"});
  write("m-00002-of-00002.gguf", {1, 3, 2, "b"});
  EXPECT_NE(error("m-00001-of-00002.gguf").find("split.count"), std::string::npos);
  EXPECT_NE(error("m-00002-of-00002.gguf").find("split.count"), std::string::npos);
}

TEST_F(GgufParts, RefuseAWrongTotalOfTensors) {
  write("m-00001-of-00002.gguf", {0, 2, 5, "a"});
  write("m-00002-of-00002.gguf", {1, 2, 5, "b"});
  EXPECT_NE(error("m-00001-of-00002.gguf").find("5, but the 2 parts hold 2 tensors"), std::string::npos);
}

TEST_F(GgufParts, RefuseATensorInTwoParts) {
  write("m-00001-of-00002.gguf", {0, 2, 2, "a"});
  write("m-00002-of-00002.gguf", {1, 2, 2, "a"});
  EXPECT_NE(error("m-00001-of-00002.gguf").find("appears twice"), std::string::npos);
}

TEST_F(GgufParts, RefuseANameWithoutAPartNumber) {
  write("m.gguf", {0, 2, 2, "a"});
  EXPECT_NE(error("m.gguf").find("not named"), std::string::npos);
  write("m-00003-of-00002.gguf", {0, 2, 2, "a"});
  EXPECT_NE(error("m-00003-of-00002.gguf").find("not named"), std::string::npos);
  EXPECT_THROW(Gguf::parse(as_bytes(GgufBytes(0, 1).key("split.count", GgufType::U16).number<uint16_t>(2).text()), "x"),
               Error);
}

TEST_F(GgufParts, RefuseBytesWithoutAFile) {
  EXPECT_NE(error("absent.gguf").find("absent.gguf"), std::string::npos);
  std::ofstream(folder_ / "empty.gguf");
  EXPECT_NE(error("empty.gguf").find("empty.gguf"), std::string::npos);
  std::filesystem::create_directories(folder_ / "folder.gguf");
  EXPECT_NE(error("folder.gguf").find("folder.gguf"), std::string::npos);
}

}  // namespace
}  // namespace quire
