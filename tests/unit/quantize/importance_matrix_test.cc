// Importance matrices in files: both forms, and files that are none.
#include "quantize/importance_matrix.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/files/mapped_file.h"
#include "error_of.h"
#include "format/gguf_writer.h"
#include "quantize/measure_importance.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

class ImportanceFiles : public ::testing::Test {
 protected:
  ImportanceFiles() { fs::create_directory(folder_); }
  ~ImportanceFiles() override { fs::remove_all(folder_); }

  fs::path file(const std::string& name) const { return folder_ / name; }
  std::string refusal(const std::string& bytes) const {
    std::ofstream(file("x"), std::ios::binary) << bytes;
    return error_of([&] { read_importance_matrix(file("x")); });
  }

  const fs::path folder_ = fs::temp_directory_path() / ("quire-importance-" + std::to_string(::getpid()));
};

ImportanceMatrix some() {
  ImportanceMatrix m;
  m.entries["blk.0.attn_q.weight"] = {{2, 4, 6}, {2}};
  m.entries["blk.0.ffn_down_exps.weight"] = {{1, 2, 0, 0, 9, 18}, {1, 0, 3}};
  m.datasets = {"a.txt", "b.txt"};
  m.chunks = 7, m.chunk_size = 512;
  return m;
}

TEST_F(ImportanceFiles, KeepEverythingAsGguf) {
  write_importance_matrix(some(), file("m.gguf"), ImportanceForm::kGguf);
  const ImportanceMatrix m = read_importance_matrix(file("m.gguf"));
  ASSERT_EQ(m.entries.size(), 2u);
  for (const auto& [name, entry] : some().entries) {
    EXPECT_EQ(m.entries.at(name).sums, entry.sums);
    EXPECT_EQ(m.entries.at(name).counts, entry.counts);
  }
  EXPECT_EQ(m.datasets, some().datasets);
  EXPECT_EQ(m.chunks, 7);
  EXPECT_EQ(m.chunk_size, 512);
  const Gguf gguf = Gguf::open(file("m.gguf"));
  EXPECT_EQ(gguf.get<std::string>("general.type"), "imatrix");
  EXPECT_EQ(gguf.find_tensor("blk.0.ffn_down_exps.weight.in_sum2")->shape, (std::vector<uint64_t>{3, 2}));
  EXPECT_EQ(gguf.find_tensor("blk.0.ffn_down_exps.weight.counts")->shape, (std::vector<uint64_t>{3, 1}));
}

TEST_F(ImportanceFiles, KeepMeanSquaresInTheOlderForm) {
  write_importance_matrix(some(), file("m.dat"), ImportanceForm::kLegacy);
  const ImportanceMatrix m = read_importance_matrix(file("m.dat"));
  for (const auto& [name, entry] : some().entries) {
    const auto expected = ImportanceMatrix::mean_squares(entry),
               got = ImportanceMatrix::mean_squares(m.entries.at(name));
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_FLOAT_EQ(got[i], expected[i]) << name << " " << i;
  }
  EXPECT_EQ(m.datasets, std::vector<std::string>{"b.txt"});
  EXPECT_EQ(m.chunks, 7);
}

TEST_F(ImportanceFiles, GiveOnesToExpertsWithoutRows) {
  EXPECT_EQ(ImportanceMatrix::mean_squares(some().entries.at("blk.0.ffn_down_exps.weight")),
            (std::vector<float>{1, 2, 1, 1, 3, 6}));
}

TEST_F(ImportanceFiles, OfTheOlderFormAreRefusedWhereverTheyAreCut) {
  write_importance_matrix(some(), file("m.dat"), ImportanceForm::kLegacy);
  const std::string whole = read_text_file(file("m.dat"));
  const size_t tail = 4 + 4 + 5;  // chunks, and the name of the text
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string message = refusal(whole.substr(0, size));
    if (size == whole.size() - tail) {
      EXPECT_EQ(message, "");  // the tail may be missing
    } else if (size != whole.size() - tail + 4) {
      EXPECT_NE(message.find("is not an importance matrix"), std::string::npos) << size << ": " << message;
    }
  }
}

TEST_F(ImportanceFiles, OfTheOlderFormAreRefusedWithWrongNumbers) {
  write_importance_matrix(some(), file("m.dat"), ImportanceForm::kLegacy);
  const std::string whole = read_text_file(file("m.dat"));
  const auto with = [&](size_t at, auto value) {
    std::string bytes = whole;
    std::memcpy(bytes.data() + at, &value, sizeof value);
    return refusal(bytes);
  };
  const size_t calls = 8 + 19, values = calls + 4, first = values + 4;  // after the count, and the first name
  EXPECT_NE(with(0, 0).find("it says that it has 0 entries"), std::string::npos);
  EXPECT_NE(with(0, -1).find("it says that it has -1 entries"), std::string::npos);
  EXPECT_NE(with(0, 1 << 30).find("entry 3 of"), std::string::npos);
  EXPECT_NE(with(4, -1).find("entry 1 of 2 would take -1 times 1 bytes"), std::string::npos);
  EXPECT_NE(with(4, 0x7fffffff).find("entry 1 of 2 would take"), std::string::npos);
  EXPECT_NE(with(values, 0x7fffffff).find("entry 1 of 2 would take 2147483647 times 4 bytes"), std::string::npos);
  EXPECT_NE(with(values, 0).find("do not fit each other"), std::string::npos);
  EXPECT_NE(with(first, NAN).find("entry \"blk.0.attn_q.weight\" has the sum nan"), std::string::npos)
      << with(first, NAN);
  EXPECT_NE(with(first, -1.0f).find("has the sum -1"), std::string::npos);
  EXPECT_NE(with(first, INFINITY).find("has the sum inf"), std::string::npos);
}

TEST_F(ImportanceFiles, AreRefusedIfTheyAreOtherFiles) {
  EXPECT_NE(refusal("").find("it ends within the number of entries"), std::string::npos);
  EXPECT_NE(refusal("GGUF").find(file("x").string()), std::string::npos);
  EXPECT_NE(refusal("This is a text about something else.").find("is not an importance matrix"), std::string::npos);
  EXPECT_NE(error_of([&] { read_importance_matrix(file("missing")); }).find("missing"), std::string::npos);
  EXPECT_NE(error_of([&] { read_importance_matrix(folder_); }).find("not a regular file"), std::string::npos);
}

TEST_F(ImportanceFiles, AsGgufAreRefusedWithWrongNumbers) {
  struct Case {
    float sum, count;
    const char* message;
  };
  const Case cases[] = {
      {NAN, 1, "has the sum nan"},
      {-1, 1, "has the sum -1"},
      {INFINITY, 1, "has the sum inf"},
      {1, NAN, "has the count nan"},
      {1, -2, "has the count -2"},
      {1, INFINITY, "has the count inf"},
      {1, 0.5f, "has the count 0.5;"},
      {1, 1e-40f, "are whole numbers"},
      {FLT_MAX, FLT_MIN, "are whole numbers"},
      {FLT_MAX, 1, ""},
      {0, 0, ""},
  };
  for (const Case& c : cases) {
    ImportanceMatrix m;
    m.entries["a"] = {{c.sum, 2}, {c.count}};
    write_importance_matrix(m, file("m.gguf"), ImportanceForm::kGguf);
    const std::string message = error_of([&] { read_importance_matrix(file("m.gguf")); });
    EXPECT_NE(message.find(c.message), std::string::npos) << c.sum << " " << c.count << ": " << message;
    EXPECT_EQ(message.empty(), c.message[0] == '\0') << message;
  }
}

TEST_F(ImportanceFiles, InMemoryAreReadAsThoseOnDisk) {
  for (const ImportanceForm form : {ImportanceForm::kGguf, ImportanceForm::kLegacy}) {
    write_importance_matrix(some(), file("m"), form);
    const std::string bytes = read_text_file(file("m"));
    const ImportanceMatrix m = parse_importance_matrix(std::as_bytes(std::span(bytes)), "m");
    const ImportanceMatrix expected = read_importance_matrix(file("m"));
    ASSERT_EQ(m.entries.size(), expected.entries.size());
    for (const auto& [name, entry] : expected.entries) EXPECT_EQ(m.entries.at(name).sums, entry.sums);
    EXPECT_EQ(m.datasets, expected.datasets);
  }
}

TEST_F(ImportanceFiles, AreNotAddedIfTheirSumsOverflow) {
  ImportanceMatrix large;
  large.entries["a"] = {{3e38f, 1}, {1}};
  ImportanceMatrix sum = large;
  EXPECT_EQ(error_of([&] { add_importance(sum, large); }),
            "the sums of a in the importance matrices are too large to be added");
}

TEST_F(ImportanceFiles, AsGgufAreRefusedWithPartsMissingOrWrong) {
  struct Case {
    const char* type;
    std::string sums, counts;
    TensorType dtype;
    std::vector<uint64_t> sums_shape, counts_shape;
    const char* message;
  };
  const Case cases[] = {
      {"model", "a.in_sum2", "a.counts", TensorType::F32, {1, 4}, {1, 1}, "general.type is not \"imatrix\""},
      {"imatrix", "a.in_sum2", "b.counts", TensorType::F32, {1, 4}, {1, 1}, "the entry \"a\" has sums, but no counts"},
      {"imatrix", "a", "b", TensorType::F32, {1, 4}, {1, 1}, "the importance matrix has no entries"},
      {"imatrix",
       "a.in_sum2",
       "a.counts",
       TensorType::F16,
       {1, 4},
       {1, 1},
       "has type F16; an importance matrix has F32"},
      {"imatrix", "a.in_sum2", "a.counts", TensorType::F32, {1, 4}, {3, 1}, "4 sums and 3 counts"},
  };
  for (const Case& c : cases) {
    GgufHeader header;
    header.string("general.type", c.type);
    header.tensor(c.sums, c.dtype, c.sums_shape);
    header.tensor(c.counts, c.dtype, c.counts_shape);
    GgufFile(file("m.gguf"), header).commit();  // zeros
    const std::string message = error_of([&] { read_importance_matrix(file("m.gguf")); });
    EXPECT_NE(message.find(c.message), std::string::npos) << message;
  }
}

TEST_F(ImportanceFiles, ThatCannotBeWrittenAreNamed) {
  for (const ImportanceForm form : {ImportanceForm::kGguf, ImportanceForm::kLegacy}) {
    const std::string message = error_of([&] { write_importance_matrix(some(), file("none/m"), form); });
    EXPECT_NE(message.find("none/m.tmp cannot be written: No such file or directory"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace quire
