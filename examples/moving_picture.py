"""The moving picture of the README, from a run of FedAvg: `python examples/moving_picture.py OUT.gif`."""

import sys

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from PIL import Image

from fedbook.experiment import plan
from fedbook.lab import style
from fedbook.papers import paper

SETTINGS = {"clients": 20, "clients_per_round": 0, "train_samples": 6000, "test_samples": 2000, "evaluate_every": 1}
SHOWN = 5  # clients
DOWN, UP = style.PALETTE[2], style.PALETTE[1]  # what the server sends, what the clients send


def frames(rounds, **changes):
    """Two pictures a round, from a federation of clients with two digits each: the model goes down, models come up."""
    settings = SETTINGS | {"rounds": rounds, "partition": "classes", "batch_size": 20} | changes
    alone = list(plan(paper("fedavg"), "local", "mnist", changes=settings, device="cpu").rounds())
    level = alone[-1].metrics["accuracy_all"][0]
    run = plan(paper("fedavg"), "fedavg", "mnist", changes=settings, device="cpu").rounds()
    problem = run.evaluate.__closure__[0].cell_contents  # what the run is judged on: images, split, model
    tests = torch.stack([(problem.test_y == digit).nonzero()[0, 0] for digit in range(10)])  # one of each digit
    accuracy = [float(run.evaluate(run.server, run.clients)["accuracy"][0])]
    while run.t < rounds:
        yield draw(problem, DOWN, accuracy, level, rounds, read(problem, run, tests), tests)
        accuracy.append(run.step().metrics["accuracy"][0])
        yield draw(problem, UP, accuracy, level, rounds, read(problem, run, tests), tests)


def read(problem, run, tests):
    """What the server's model reads on some test images."""
    theta = {name: value[0] for name, value in run.server["theta"].items()}
    return problem.model.apply(theta, problem.test_x[tests]).argmax(1).tolist()


def draw(problem, way, accuracy, alone, rounds, answers, tests):
    """A frame: who holds what and what crosses; the accuracy so far; ten test images with the model's answers."""
    figure = plt.figure(figsize=(8.6, 3.6), dpi=100, layout="none")
    left = figure.add_axes((0.0, 0.0, 0.5, 1.0))
    left.set(xlim=(0, 100), ylim=(0, 100))
    left.axis("off")
    left.text(50, 84, "server: the average", ha="center", va="center", fontsize=11,
              bbox={"boxstyle": "round,pad=0.6", "facecolor": "white", "edgecolor": DOWN, "linewidth": 2})  # fmt: skip
    for k in range(SHOWN):
        x, rows = 10 + 20 * k, problem.partitions[0].client(k)
        ends = ((50 + 0.3 * (x - 50), 75), (x, 45))
        start, end = ends if way == DOWN else ends[::-1]
        left.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": way, "linewidth": 2.5})
        for place, label in enumerate(problem.y[rows].unique().tolist()):
            ax = figure.add_axes((0.005 * x - 0.04 + 0.042 * place, 0.27, 0.038, 0.09))
            ax.imshow(problem.x[rows[problem.y[rows] == label][0], 0].numpy(), cmap="gray_r")
            ax.axis("off")
        left.text(x, 40, f"client {k + 1}", ha="center", fontsize=9)
    words = "the model goes down" if way == DOWN else "trained models come up, the images stay"
    left.text(50, 15, words, ha="center", fontsize=11, color=way)
    left.text(50, 6, f"{SHOWN} of {problem.partitions[0].num_clients} clients, each with two digits",
              ha="center", fontsize=9)  # fmt: skip
    right = figure.add_axes((0.56, 0.42, 0.41, 0.46))
    right.axhline(alone, color=style.REFERENCE, linestyle="--")
    right.text(rounds, alone + 0.03, "each client alone", ha="right", fontsize=9, color=style.REFERENCE)
    right.plot(range(len(accuracy)), accuracy, color=UP, marker="o", markersize=3)
    right.set(xlim=(0, rounds), ylim=(0, 1), xticks=range(0, rounds + 1, 5), ylabel="test accuracy")
    right.set_title(f"round {len(accuracy) - 1}: {accuracy[-1]:.0%} of the test images", fontsize=11)
    figure.text(0.765, 0.24, "what the server's model reads", ha="center", fontsize=9)
    for digit, (answer, row) in enumerate(zip(answers, tests.tolist(), strict=True)):
        ax = figure.add_axes((0.56 + 0.041 * digit, 0.1, 0.037, 0.1))
        ax.imshow(problem.test_x[row, 0].numpy(), cmap="gray_r")
        ax.axis("off")
        colour = style.GREEN_TEXT if answer == digit else style.ORANGE_TEXT
        ax.text(0.5, -0.5, str(answer), color=colour, fontweight="bold", ha="center", transform=ax.transAxes)
    figure.canvas.draw()
    picture = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3].copy())
    plt.close(figure)
    return picture


def write(path, rounds=20, **changes):
    """The frames as a GIF with one palette; the last one stays for three seconds."""
    style.use()
    pictures = list(frames(rounds, **changes))
    palette = pictures[-1].quantize(48)
    first, *rest = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    times = [1000, *[300] * (len(rest) - 1), 3000]
    first.save(path, save_all=True, append_images=rest, duration=times, loop=0, optimize=True)


if __name__ == "__main__":
    write(sys.argv[1])
