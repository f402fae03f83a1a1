fn main() {
    image::appliance();
}
