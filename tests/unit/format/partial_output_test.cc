#include "format/partial_output.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "base/files/checksum.h"
#include "base/files/mapped_file.h"
#include "error_of.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

class PartialOutputTest : public ::testing::Test {
 protected:
  PartialOutputTest() {
    fs::remove_all(home_);
    fs::create_directory(home_);
  }
  ~PartialOutputTest() override { fs::remove_all(home_); }

  fs::path output() const { return home_ / "out"; }
  fs::path folder() const { return home_ / "out.partial"; }
  fs::path journal() const { return folder() / "journal.jsonl"; }
  static void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }
  // A run that finishes two parts and is then interrupted.
  void leave_two_parts() const {
    PartialOutput partial(output(), order_, false);
    write(partial.output(), "what is written");
    partial.add("a", {{1}, Json::object()});
    partial.add("b", {{2, UINT64_MAX}, {{"lost", 0.1}}});
  }
  std::string refusal(const Json& order, bool start_over = false) const {
    return error_of([&] { PartialOutput partial(output(), order, start_over); });
  }

  const fs::path home_ = fs::temp_directory_path() / ("quire-partial-" + std::to_string(::getpid()));
  const Json order_ = {{"--type", "Q4_0"}, {"--pure", true}};
};

TEST_F(PartialOutputTest, KeepsFinishedPartsForTheSameOrder) {
  leave_two_parts();
  const PartialOutput partial(output(), order_, false);
  EXPECT_FALSE(partial.is_empty());
  EXPECT_EQ(partial.warning(), "");
  ASSERT_TRUE(partial.find("a") && partial.find("b"));
  EXPECT_EQ(partial.find("b")->checksums, (std::vector<uint64_t>{2, UINT64_MAX}));
  EXPECT_EQ(partial.find("b")->facts["lost"], 0.1);
  EXPECT_FALSE(partial.find("c"));
  EXPECT_EQ(read_text_file(partial.output()), "what is written");
}

TEST_F(PartialOutputTest, LeavesNothingBehindIfNothingIsFinished) {
  { const PartialOutput partial(output(), order_, false); }
  EXPECT_TRUE(fs::is_empty(home_));
}

TEST_F(PartialOutputTest, LeavesNothingBehindWhenItIsFinished) {
  leave_two_parts();
  PartialOutput partial(output(), order_, false);
  partial.finish();
  EXPECT_TRUE(fs::is_empty(home_));
}

TEST_F(PartialOutputTest, RefusesAnotherOrderAndSaysWhatDiffers) {
  leave_two_parts();
  EXPECT_EQ(refusal({{"--type", "Q5_0"}, {"--name", "x"}}),
            folder().string() +
                " was left by a run of another kind: --type was Q4_0 and is Q5_0 now; --pure was true and is not given "
                "now; --name was not given and is x now; give the same flags and files again, or start over with "
                "--force");
  // The refusal changes nothing.
  EXPECT_TRUE(PartialOutput(output(), order_, false).find("a"));
  const PartialOutput partial(output(), {{"--type", "Q5_0"}}, true);
  EXPECT_TRUE(partial.is_empty());
  EXPECT_FALSE(fs::exists(partial.output()));
}

TEST_F(PartialOutputTest, StartsOverWithAWarningIfTheJournalIsDamaged) {
  for (const char* damage : {"{\"part\": \"c\"}\n", "rubbish\n", "{\"part\": 7, \"checksums\": [], \"facts\": {}}\n",
                             "{\"part\": \"c\", \"checksums\": [-1], \"facts\": {}}\n", "\n"}) {
    leave_two_parts();
    write(journal(), read_text_file(journal()) + damage);
    {
      const PartialOutput partial(output(), order_, false);
      EXPECT_NE(partial.warning().find("is dropped, and the run starts over"), std::string::npos) << damage;
      EXPECT_TRUE(partial.is_empty());
      EXPECT_FALSE(fs::exists(partial.output()));
    }
    EXPECT_TRUE(fs::is_empty(home_));
  }
  fs::create_directory(folder());
  write(journal(), "{\"quire_journal\": 2, \"order\": {}}\n");
  EXPECT_NE(PartialOutput(output(), order_, false).warning(), "");
}

TEST_F(PartialOutputTest, DropsALineThatWasBeingWritten) {
  leave_two_parts();
  const std::string whole = read_text_file(journal());
  for (size_t cut = 1; cut < 40; ++cut) {
    write(journal(), whole.substr(0, whole.size() - cut));
    PartialOutput partial(output(), order_, false);
    EXPECT_EQ(partial.warning(), "");
    EXPECT_TRUE(partial.find("a"));
    EXPECT_FALSE(partial.find("b"));
    partial.add("c", {{3}, Json::object()});
  }
  EXPECT_TRUE(PartialOutput(output(), order_, false).find("c"));
}

TEST_F(PartialOutputTest, IsUsedByOneProcessAtATime) {
  const PartialOutput partial(output(), order_, false);
  EXPECT_NE(refusal(order_).find("another process works on " + folder().string()), std::string::npos);
  EXPECT_NE(refusal(order_, true).find("another process works on "), std::string::npos);
}

TEST_F(PartialOutputTest, DoesNotTouchAFolderOfSomethingElse) {
  fs::create_directory(folder());
  write(folder() / "mine", "mine");
  EXPECT_NE(refusal(order_, true).find("no interrupted run has left it"), std::string::npos);
  EXPECT_EQ(read_text_file(folder() / "mine"), "mine");
  fs::remove_all(folder());
  leave_two_parts();
  write(folder() / "mine", "mine");
  PartialOutput(output(), order_, false).finish();
  EXPECT_EQ(read_text_file(folder() / "mine"), "mine");
  fs::remove_all(folder());
  write(folder(), "a file");
  EXPECT_NE(refusal(order_).find("no interrupted run has left it"), std::string::npos);
}

TEST_F(PartialOutputTest, TrustsFilesByTheirContent) {
  PartialOutput partial(output(), order_, false);
  EXPECT_FALSE(partial.has_file(partial.types()));
  write(partial.types(), "types");
  EXPECT_FALSE(partial.has_file(partial.types()));
  partial.add_file(partial.types());
  EXPECT_TRUE(partial.has_file(partial.types()));
  write(partial.types(), "typos");
  EXPECT_FALSE(partial.has_file(partial.types()));
}

}  // namespace
}  // namespace quire
