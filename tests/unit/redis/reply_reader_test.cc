#include "redis/reply_reader.h"

#include <gtest/gtest.h>

#include <string_view>

#include "error_of.h"

namespace quire {
namespace {

constexpr size_t kLongestReply = 100;

// Feeds the bytes one by one, and returns the replies as text.
std::vector<std::string> replies_in(std::string_view bytes) {
  ReplyReader reader(kLongestReply);
  std::vector<std::string> replies;
  for (const char byte : bytes) {
    reader.feed({&byte, 1});
    while (const RedisReply* const reply = reader.next()) {
      switch (reply->kind) {
        case RedisReply::kInteger:
          replies.push_back(std::to_string(reply->integer));
          break;
        case RedisReply::kNothing:
          replies.push_back("nothing");
          break;
        default:
          replies.push_back("+-:$"[reply->kind] + reply->text);
      }
    }
  }
  return replies;
}

TEST(ReplyReader, ReadsEachKind) {
  EXPECT_EQ(replies_in("+OK\r\n-ERR no\r\n:42\r\n$3\r\na\r\n\r\n$-1\r\n*-1\r\n$0\r\n\r\n"),
            (std::vector<std::string>{"+OK", "-ERR no", "42", "$a\r\n", "nothing", "nothing", "$"}));
}

TEST(ReplyReader, RefusesWhatIsNotAReplyToACommandOfOurs) {
  for (const char* const wrong :
       {"*1000000000\r\n", "*1\r\n:1\r\n", "*0\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n", "$x\r\n"})
    EXPECT_NE(error_of([&] { replies_in(wrong); }).find("is not one of a Redis server"), std::string::npos) << wrong;
}

TEST(ReplyReader, RefusesAReplyThatIsTooLong) {
  EXPECT_EQ(replies_in("$80\r\n" + std::string(80, 'x') + "\r\n").size(), 1u);
  const std::string announced = "$1000000000\r\n";  // allocates nothing
  EXPECT_TRUE(replies_in(announced).empty());
  EXPECT_NE(error_of([&] { replies_in(announced + std::string(2 * kLongestReply, 'x')); }).find("longer than"),
            std::string::npos);
  EXPECT_NE(error_of([&] { replies_in("+" + std::string(2 * kLongestReply, 'x')); }).find("longer than"),
            std::string::npos);
}

}  // namespace
}  // namespace quire
