"""The peer of the `model` bench: the same model and work in PyTorch, eager, float32.

usage: torch_peer.py train|generate MODEL_DIR BATCH LENGTH NEW RUNS
Prints the median tokens per second: of whole training steps, or of new tokens with the prompt's time included.
"""

import statistics
import sys
import time

import torch
from transformers import AutoModelForCausalLM

task, directory = sys.argv[1:3]
batch, length, new, runs = map(int, sys.argv[3:])
model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="sdpa")
vocabulary = model.config.vocab_size
ids = torch.tensor(
    [[(row * 7919 + place * 104729 + row * place) % vocabulary for place in range(length)] for row in range(batch)]
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)


def train():
    logits = model(input_ids=ids, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return batch * length


def generate():
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=new,
        min_new_tokens=new,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    assert out.shape[1] == length + new
    return batch * new


run = {"train": train, "generate": generate}[task]
model.train(task == "train")
run()
rates = []
for _ in range(runs):
    start = time.perf_counter()
    tokens = run()
    rates.append(tokens / (time.perf_counter() - start))
print(statistics.median(rates))
