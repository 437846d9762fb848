#include "server/api/answer.h"

#include "server/api/chat.h"
#include "server/api/embeddings.h"
#include "server/api/messages.h"
#include "server/api/responses.h"

namespace quire {

void Answer::fail(const ApiError& error, std::string& out) { out += "data: " + error_body(error) + "\n\n"; }

std::unique_ptr<Answer> make_answer(ResponseHead head, TokenBytes token_bytes) {
  switch (head.request.api) {
    case Api::kResponse:
      return response_answer(std::move(head), std::move(token_bytes));
    case Api::kMessage:
      return message_answer(std::move(head));
    case Api::kEmbedding:
      return embeddings_body(std::move(head));
    default:
      return head.request.stream ? chat_stream(std::move(head), std::move(token_bytes))
                                 : chat_body(std::move(head), std::move(token_bytes));
  }
}

std::unique_ptr<Answer> ready_answer(std::string body) {
  class Ready final : public Answer {
   public:
    explicit Ready(std::string body) : body_(std::move(body)) {}
    void add(int, const Output&, std::string&) override {}
    void end(std::string& out) override { out = std::move(body_); }

   private:
    std::string body_;
  };
  return std::make_unique<Ready>(std::move(body));
}

}  // namespace quire
