#include "cli/bench/prompts.h"

namespace quire {
namespace {

struct CopyPrompt {
  std::string_view name, text;
};

// One kind of work each. The answers are about as long as the text that they repeat, some 100 to 200 tokens.
constexpr CopyPrompt kCopyPrompts[] = {
    {"quote a paragraph",
     R"(Repeat the following paragraph word for word.

The lighthouse at Carrow Point was built in 1871 from grey granite that came by barge from the quarries of Penhale. Its lamp burned rape oil for nine years, then paraffin, and since 1934 it has run on electricity. Three keepers lived there with their families until 1982, when the light was automated. Today the lower rooms are a museum of the coast, and visitors may climb the 142 steps to the gallery on Saturdays and Sundays from May to September.)"},
    {"fix the spelling",
     R"(Correct the spelling mistakes in this letter. Change nothing else.

Dear Mrs Holloway, thank you for your letter of the third of March. We are sorry to hear that the kettle you ordred arrived without its lid. A new lid has been sent to your adress today and should reach you before the end of the week. You do not need to return the kettle. If anything else is wrong, please write to us agian or call the number at the top of this page between nine and five. We hope that you will enjoy your kettle for many years. Yours sincerely, Thomas Birch, customer service.)"},
    {"rename a variable",
     R"(Rename the variable `total` to `subtotal` in this Python function. Answer with the whole function.

def invoice_amount(items, tax_rate, discount):
    total = 0
    for item in items:
        if item.quantity < 0:
            raise ValueError("negative quantity")
        total += item.quantity * item.unit_price
    if discount > 0:
        total -= total * discount
    tax = total * tax_rate
    if total > 1000:
        shipping = 0
    else:
        shipping = 15
    return total + tax + shipping)"},
    {"add type hints",
     R"(Add type hints to these Python functions. Answer with all of the code.

def read_lines(path):
    with open(path) as file:
        return [line.rstrip("\n") for line in file]

def count_words(lines):
    counts = {}
    for line in lines:
        for word in line.split():
            counts[word] = counts.get(word, 0) + 1
    return counts

def most_common(counts, number):
    pairs = sorted(counts.items(), key=lambda pair: pair[1], reverse=True)
    return pairs[:number])"},
    {"repeat a list",
     R"(Write this shopping list again, exactly as it is, with the same numbers.

1. two loaves of rye bread
2. a dozen eggs
3. half a pound of salted butter
4. one litre of whole milk
5. three ripe tomatoes
6. a head of garlic
7. a bunch of flat-leaf parsley
8. one jar of black olives
9. two tins of chickpeas
10. a bag of basmati rice
11. one lemon
12. a bar of dark chocolate)"},
    {"turn lines into bullets",
     R"(Write each of these lines as a bullet point that begins with "- ". Keep the words.

The north gate closes at six in the evening.
Dogs must be kept on a lead near the ponds.
Bicycles may use the outer path only.
Fires and barbecues are not allowed anywhere in the park.
The boat house rents rowing boats from April to October.
Lost property is kept at the south gate for thirty days.
Groups of more than twenty people need a permit.
Please take your rubbish home with you.)"},
    {"fill a template",
     R"(Fill in this template for each of the three guests: Anna Weber in room 12, Louis Martin in room 27, Sofia Rossi in room 31.

Dear GUEST, welcome to the Hotel Seeblick. Your room is number ROOM. Breakfast is served from seven to ten in the garden hall. The sauna is on the top floor and opens at four. Please leave your key at the desk when you go out. We wish you a pleasant stay. Your team at the Hotel Seeblick.)"},
    {"change a date in a notice",
     R"(In this notice, change Tuesday 14 May to Thursday 16 May. Write the whole notice again.

Notice to all residents: the water supply of Mill Lane, Church Street and the houses around the green will be turned off on Tuesday 14 May from eight in the morning until two in the afternoon, while the main pipe below the bridge is replaced. Please fill a few bottles on the evening before. A tank with drinking water will stand in front of the town hall. If the work cannot begin on Tuesday 14 May because of heavy rain, it will be done one week later at the same hours.)"},
    {"edit a configuration",
     R"(In this configuration file, set max_connections to 200 and leave all other lines as they are. Answer with the whole file.

[server]
host = 0.0.0.0
port = 8443
max_connections = 100
idle_timeout_seconds = 30

[storage]
directory = /var/lib/archive
max_file_size_mib = 512
compression = zstd
compression_level = 3

[logging]
level = info
file = /var/log/archive.log
rotate_after_days = 14)"},
    {"extend a JSON document",
     R"(Add the key "active" with the value true to each object in this JSON array. Answer with the whole array.

[
  {"id": 101, "name": "Margaret Osei", "team": "billing", "office": "Accra"},
  {"id": 102, "name": "Jonas Lindqvist", "team": "billing", "office": "Malmo"},
  {"id": 103, "name": "Priya Raman", "team": "search", "office": "Chennai"},
  {"id": 104, "name": "Diego Fuentes", "team": "search", "office": "Valparaiso"},
  {"id": 105, "name": "Hana Kimura", "team": "support", "office": "Sapporo"}
])"},
    {"write CSV as a table",
     R"(Write this CSV data as a Markdown table.

station,line,opened,platforms,passengers
Alder Street,Red,1908,2,14200
Baker Hill,Red,1908,2,9800
Canal Bridge,Red,1911,4,31500
Dock Road,Blue,1926,2,7600
East Market,Blue,1926,2,22100
Foundry Lane,Blue,1931,2,5400
Garden Square,Green,1954,3,18900)"},
    {"quote the answer",
     R"(Read the text and quote the sentences that say what the river brought and what it took.

The village of Sandrup lies in a bend of the river Aa. In spring the river brought mud that made the fields rich, timber that the saw mills upstream had lost, and now and then a boat without its owner. In autumn it took the lower gardens, two bridges in one century, and in 1784 the church with its bell. The people of Sandrup say that on quiet nights the bell can still be heard below the willows. They have built their new church on the hill.)"},
    {"change the tense",
     R"(Write this report in the past tense. Keep everything else as it is.

The crew arrives at the site at seven and unloads the equipment from two trucks. The foreman checks the drawings and marks the line of the trench with white paint. Two workers cut the asphalt while a third worker directs the traffic around the barrier. At ten the digger opens the trench to a depth of one metre. The electricians lay the cable in a bed of sand and cover it with red tape. At four the crew fills the trench, rolls the surface and cleans the street.)"},
    {"add a docstring",
     R"(Add a docstring to this class and leave the code as it is. Answer with the whole class.

class RingBuffer:
    def __init__(self, capacity):
        self.items = [None] * capacity
        self.start = 0
        self.size = 0

    def push(self, item):
        end = (self.start + self.size) % len(self.items)
        self.items[end] = item
        if self.size < len(self.items):
            self.size += 1
        else:
            self.start = (self.start + 1) % len(self.items)

    def pop(self):
        item = self.items[self.start]
        self.start = (self.start + 1) % len(self.items)
        self.size -= 1
        return item)"},
    {"number the lines",
     R"(Write this poem again with a number in front of each line.

The wind came over the harbour wall
and shook the masts of the boats,
it rattled the door of the fishing hall
and the buttons on our coats.
The wind went up to the windmill hill
and turned the sails around,
and when the evening came it was still
and the grass lay on the ground.)"},
    {"double a recipe",
     R"(Rewrite this recipe for twelve people instead of six by doubling the amounts. Keep the wording.

Potato soup for six people: peel 900 grams of potatoes and cut them into cubes. Chop 2 onions and 3 carrots. Melt 40 grams of butter in a large pot and cook the onions until they are soft. Add the potatoes, the carrots and 1 litre of vegetable stock. Let the soup simmer for 25 minutes. Stir in 200 millilitres of cream, season with salt, pepper and nutmeg, and serve the soup with chopped parsley and slices of toasted bread.)"},
    {"extend a query",
     R"(Add the condition that orders.status is 'paid' to each of these two SQL queries. Answer with both queries.

SELECT customers.name, customers.city, COUNT(orders.id) AS number_of_orders
FROM customers JOIN orders ON orders.customer_id = customers.id
WHERE orders.created_at >= '2024-01-01'
GROUP BY customers.name, customers.city
ORDER BY number_of_orders DESC;

SELECT products.title, SUM(order_lines.quantity) AS sold
FROM products JOIN order_lines ON order_lines.product_id = products.id
JOIN orders ON orders.id = order_lines.order_id
WHERE orders.created_at >= '2024-01-01'
GROUP BY products.title
ORDER BY sold DESC;)"},
    {"change a call",
     R"(Change this C program so that it reads the numbers from the function read_number() instead of scanf. Answer with the whole program.

#include <stdio.h>

int main(void) {
    int count = 0;
    double value = 0, sum = 0, largest = 0;
    while (scanf("%lf", &value) == 1) {
        if (count == 0 || value > largest)
            largest = value;
        sum += value;
        count++;
    }
    if (count == 0) {
        printf("no numbers\n");
        return 1;
    }
    printf("count %d, mean %.3f, largest %.3f\n", count, sum / count, largest);
    return 0;
})"},
    {"clean up minutes",
     R"(Write these minutes again and replace the initials by names: MK is Maria Kovacs, TB is Tom Becker.

MK opened the meeting at ten. TB reported that the new scanner had been installed in the reading room and that the staff had been trained. MK asked how many pages had been scanned so far. TB answered that about four thousand pages had been scanned and two hundred had to be done again. MK proposed to hire a student for the summer. TB agreed and will write the advertisement. MK closed the meeting at eleven.)"},
    {"repeat with a change of name",
     R"(Tell this story again word for word, but call the fox Rowan instead of Fern.

Fern was a young fox who lived under the roots of an old oak. Every evening Fern walked to the edge of the wood and looked at the lights of the farm. "One day," said Fern, "I will see what is behind those windows." One winter night Fern went across the snow to the nearest house. Behind the window sat a cat by the fire, and the cat looked at Fern for a long time. Then Fern walked home, curled up under the roots, and dreamed of the fire.)"},
};

}  // namespace

std::vector<BenchPrompt> copy_prompts() {
  std::vector<BenchPrompt> prompts;
  for (const CopyPrompt& prompt : kCopyPrompts) prompts.push_back({std::string(prompt.name), std::string(prompt.text)});
  return prompts;
}

}  // namespace quire
