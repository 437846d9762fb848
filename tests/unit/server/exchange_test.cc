// The mailbox between engine and connection, without a network.
#include "server/api/exchange.h"

#include <gtest/gtest.h>

#include <atomic>

#include "unit/server/running_server.h"

namespace quire {
namespace {

struct Parts {
  ScriptedCompleter model;
  Metrics all;
  std::shared_ptr<ModelMetrics> metrics = all.add_model("m", ModelInfo{});
  std::shared_ptr<Admission> admission = std::make_shared<Admission>(10);
  std::atomic<int> wakes{0};
  ByteBudget replies{1 << 30};

  Places places(int answers) { return {admission, "", admission->enter("", answers), answers}; }
  std::shared_ptr<Exchange> exchange(size_t max_bytes) {
    return std::make_shared<Exchange>(
        model, metrics, [this] { ++wakes; }, max_bytes, replies);
  }
};

TEST(Exchange, WakesOnceUntilItIsEmptied) {
  Parts parts;
  const auto exchange = parts.exchange(1 << 20);
  exchange->start({{.prompt = {1}, .sampling = {}}, {.prompt = {2}, .sampling = {}}}, parts.places(2));
  ASSERT_TRUE(eventually([&] { return parts.admission->inside() == 0; }));
  EXPECT_EQ(parts.wakes, 1);
  std::vector<Piece> pieces;
  std::string texts[2];
  EXPECT_TRUE(eventually([&] {
    exchange->take(pieces);
    return pieces.size() == 10;
  }));
  for (const Piece& piece : pieces) texts[piece.choice] += piece.output.text;
  EXPECT_EQ(texts[0], "Hello");
  EXPECT_EQ(texts[1], "Hello");
  exchange->close();
  EXPECT_EQ(parts.model.cancels(), 0);
}

TEST(Exchange, HoldsNoMoreThanItsLimitAndCancels) {
  Parts parts;
  parts.model.endless = true;
  const auto exchange = parts.exchange(10'000);
  exchange->start({{.prompt = {1}, .sampling = {}}}, parts.places(1));
  ASSERT_TRUE(eventually([&] { return parts.admission->inside() == 0; }));
  EXPECT_TRUE(eventually([&] { return exchange->overflowed(); }));
  std::vector<Piece> pieces;
  exchange->take(pieces);
  EXPECT_LT(pieces.size() * sizeof(Piece), 20'000u);
}

TEST(Exchange, HoldsNoMoreThanAllMayTogether) {
  Parts parts;
  parts.model.endless = true;
  ASSERT_TRUE(parts.replies.take((1 << 30) - 10'000));
  const auto exchange = parts.exchange(1 << 20);
  exchange->start({{.prompt = {1}, .sampling = {}}}, parts.places(1));
  ASSERT_TRUE(eventually([&] { return parts.admission->inside() == 0; }));
  EXPECT_TRUE(exchange->overflowed());
  exchange->close();
  EXPECT_TRUE(parts.replies.take(10'000)) << "all is given back";
}

TEST(Exchange, CountsAnEndOnceThatFoundNoMemory) {
  Parts parts;
  bool first = true;
  const auto wake = [&] {
    if (std::exchange(first, false)) throw std::bad_alloc();
  };
  const auto exchange = std::make_shared<Exchange>(parts.model, parts.metrics, wake, 1 << 20, parts.replies);
  exchange->start({{.prompt = {1}, .sampling = {.max_tokens = 1}}}, parts.places(1));
  std::vector<Piece> pieces;
  ASSERT_TRUE(eventually([&] {
    exchange->take(pieces);
    return !pieces.empty();
  }));
  EXPECT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].output.finish, FinishReason::kError);
  EXPECT_EQ(parts.admission->inside(), 0);
  exchange->close();
}

TEST(Exchange, IsSilentOnceClosed) {
  Parts parts;
  parts.model.endless = true;
  auto exchange = parts.exchange(1 << 30);
  exchange->start({{.prompt = {1}, .sampling = {}}}, parts.places(1));
  exchange->close();
  exchange.reset();
  EXPECT_TRUE(eventually([&] { return parts.admission->inside() == 0; }));
}

// The engine may be in the middle of a long step.
TEST(Exchange, GivesBackItsPlacesAtOnceWhenItIsClosed) {
  Parts parts;
  parts.model.endless = true;
  parts.model.token_time = std::chrono::milliseconds(300);
  auto exchange = parts.exchange(1 << 20);
  std::vector<Request> many(8, Request{.prompt = {1}, .sampling = {}});
  exchange->start(many, parts.places(8));
  ASSERT_TRUE(eventually([&] { return parts.model.running() == 8; }));
  EXPECT_EQ(parts.admission->enter("", 5), 0);
  exchange->close();
  EXPECT_EQ(parts.admission->inside(), 0);
  // But requests that are dropped again and again cannot flood the engine.
  auto next = parts.exchange(1 << 20);
  next->start(many, parts.places(8));
  next->close();
  EXPECT_EQ(parts.admission->inside(), 8) << "until the first ones have ended";
  EXPECT_TRUE(eventually([&] { return parts.admission->inside() == 0; }));
  exchange.reset();
  next.reset();
  EXPECT_TRUE(eventually([&] { return parts.model.running() == 0; }));
  EXPECT_TRUE(parts.admission->abandon("", 0, 10)) << "nothing is ending any more";
}

TEST(Exchange, GivesBackThePlacesOfWhatCouldNotBeSubmitted) {
  Parts parts;
  parts.model.endless = true;
  parts.model.on_submit = [](const Request& request) {
    if (request.prompt[0] == 2) throw std::bad_alloc();
  };
  auto exchange = parts.exchange(1 << 20);
  const Request good{.prompt = {1}, .sampling = {}}, bad{.prompt = {2}, .sampling = {}};
  EXPECT_THROW(exchange->start({good, bad, good}, parts.places(3)), std::bad_alloc);
  exchange.reset();
  EXPECT_TRUE(eventually([&] { return parts.admission->inside() == 0; }));
}

TEST(Admission, PlacesComeBackOnceHoweverTheyMove) {
  const auto admission = std::make_shared<Admission>(10);
  ASSERT_EQ(admission->enter("", 5), 5);
  {
    Places first(admission, "", 5, 5), second;
    second = std::move(first);
    second.leave(2);
    EXPECT_EQ(admission->inside(), 3);
    const Places third(std::move(second));
    EXPECT_EQ(admission->inside(), 3);
  }
  EXPECT_EQ(admission->inside(), 0);
}

TEST(Admission, LetsInWhatFitsAndOneThatNeverWould) {
  Admission admission(4);
  EXPECT_EQ(admission.enter("", 2), 2);
  EXPECT_EQ(admission.enter("", 9), 9) << "next to others, while half of the places are free";
  EXPECT_EQ(admission.enter("", 1), 0);
  EXPECT_EQ(admission.enter("", 9), 0);
  admission.leave("", 11, 11);
  EXPECT_EQ(admission.enter("", 3), 3);
  EXPECT_EQ(admission.enter("", 2), 0);
  EXPECT_EQ(admission.enter("", 1), 1);
  EXPECT_EQ(admission.enter("", 2'000'000'000), 0);
}

TEST(Admission, LeavesPlacesToOtherTenants) {
  Admission admission(12, true);
  int first = 0;
  while (admission.enter("a", 1) > 0) ++first;
  EXPECT_EQ(first, 6) << "a tenant may hold as many places as it leaves free";
  int second = 0;
  while (admission.enter("b", 1) > 0) ++second;
  EXPECT_EQ(second, 3);
  EXPECT_EQ(admission.enter("a", 1), 0);
  admission.leave("a", 6, 6);
  EXPECT_EQ(admission.enter("b", 1), 1);
}

TEST(Admission, ASingleTenantHasAllPlaces) {
  Admission admission(2);
  EXPECT_EQ(admission.enter("a", 1), 1);
  EXPECT_EQ(admission.enter("a", 1), 1) << "one runs, one waits";
  EXPECT_EQ(admission.refusal("a"), "");
  admission.share(true);  // a second key came with a reload
  EXPECT_NE(admission.refusal("a").find("it holds 2 of the 2 places"), std::string::npos);
  admission.leave("a", 1, 1);
  EXPECT_EQ(admission.enter("a", 1), 0) << "must leave as many free as it holds";
  EXPECT_EQ(admission.enter("b", 1), 1);
}

TEST(Admission, LetsEachTenantInWithOneLargeRequest) {
  const auto admission = std::make_shared<Admission>(12, true);
  const auto enter = [&](const char* tenant, int answers) {
    return Places(admission, tenant, admission->enter(tenant, answers), answers);
  };
  Places large = enter("a", 2048);
  EXPECT_EQ(admission->inside(), 2048);
  EXPECT_EQ(admission->enter("a", 1), 0);
  const Places next = enter("b", 2);
  EXPECT_EQ(admission->inside(), 2050) << "others still get in";
  large.leave(2045);
  EXPECT_EQ(admission->inside(), 5);
  EXPECT_EQ(admission->enter("a", 1), 1) << "places come back when fewer answers are left than it holds places";
  admission->leave("a", 1, 1);
  { const Places rest = std::move(large); }
  EXPECT_EQ(admission->inside(), 2);
  EXPECT_EQ(Admission(1, true).enter("a", 1), 1) << "an idle server refuses nobody";
}

}  // namespace
}  // namespace quire
